import type { IncomingMessage } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import { readMultipart } from '../../src/http/multipart.ts';

// How a form is read, and refused.

interface Part {
  name?: string;
  filename?: string;
  type?: string;
  value: string;
}

const partOf = ({ name, filename, type, value }: Part) =>
  `--b\r\nContent-Disposition: form-data${name === undefined ? '' : `; name="${name}"`}` +
  `${filename === undefined ? '' : `; filename="${filename}"`}\r\n${type === undefined ? '' : `Content-Type: ${type}\r\n`}\r\n${value}\r\n`;
const formOf = (...parts: Part[]) => `${parts.map(partOf).join('')}--b--\r\n`;
const fields = (count: number): Part[] =>
  Array.from({ length: count }, (_, at) => ({ name: `f${at}`, value: `${at}` }));
const file: Part = { name: 'file', filename: 'a.bin', type: 'application/octet-stream', value: 'bytes' };

interface Options {
  type?: string;
  idle?: number;
  onFile?: (name: string, filename: string, content: Readable) => Promise<unknown>;
}

/** A form that is being sent, what is read of it, and the promise of the end. */
function sending({ type = 'multipart/form-data; boundary=b', idle = 60_000, onFile }: Options = {}) {
  const read: string[] = [];
  const body = new PassThrough();
  const request = Object.assign(body, { headers: { 'content-type': type }, complete: false });
  const end = readMultipart(request as unknown as IncomingMessage, {
    idle,
    files: 1,
    tooMany: 'Only one file.',
    expected: 'Send a form.',
    onField: (name, value) => void read.push(`${name}=${value}`),
    onFile: async (name, filename, content) => {
      if (onFile) return onFile(name, filename, content);
      const bytes = await buffer(content);
      await setImmediate();
      return read.push(`${name} ${filename}: ${bytes.toString()}`);
    },
  });
  const send = (text: string) => {
    request.complete = true;
    body.end(text);
    return end;
  };
  return { read, body, end, send };
}

test('a form ends when its fields have been read and the readers of its files have ended', async (t) => {
  const { read, send } = sending();
  await send(formOf({ name: 'a', value: '1' }, file, { name: 'b', value: '' }));
  t.deepEqual(read, ['a=1', 'b=', 'file a.bin: bytes']);
  const unnamed = sending();
  await unnamed.send(formOf({ name: 'file', type: 'application/octet-stream', value: 'x' }));
  t.deepEqual(unnamed.read, ['file : x']);
  const most = sending();
  const long = { name: 'long', value: 'x'.repeat(1024) };
  await most.send(formOf(...fields(15), long, file));
  t.deepEqual(most.read.slice(-2), [`long=${long.value}`, 'file a.bin: bytes']);
});

test('a form with too much, or what is none, is refused', async (t) => {
  for (const [form, message] of [
    [formOf(...fields(17)), 'The form has more than 16 fields.'],
    [formOf(...Array.from({ length: 27 }, () => ({ value: '' }))), 'The form has more than 16 fields.'],
    [formOf({ name: 'long', value: 'x'.repeat(1025) }), 'A field of the form is longer than 1024 bytes.'],
    [formOf(file, file), 'Only one file.'],
    [partOf({ name: 'a', value: '1' }), 'Send a form.'],
  ] as const)
    await t.throwsAsync(sending().send(form), { name: 'Invalid', message });
  for (const type of ['text/plain', 'multipart/form-data'])
    await t.throwsAsync(sending({ type }).send(formOf(file)), { name: 'Invalid', message: 'Send a form.' });
});

test('a form ends with the error of the reader of a file', async (t) => {
  const reason = new Error('no space');
  const { body, end } = sending({ onFile: () => Promise.reject(reason) });
  body.write(partOf(file));
  t.is(await t.throwsAsync(end), reason);
  t.is(body.listenerCount('data'), 0, 'nothing reads or watches it any more');
});

test('a form that closes or is silent is Aborted after the readers of its files have ended', async (t) => {
  const closed = { name: 'Aborted', message: 'The connection closed before the body was complete.' };
  for (const [idle, message] of [
    [60_000, closed.message],
    [40, 'The sender stopped sending before the end of the body.'],
  ] as const) {
    let hasEnded = false;
    const begun = Promise.withResolvers<void>();
    const onFile = async (_name: string, _filename: string, content: Readable) => {
      begun.resolve();
      await t.throwsAsync(buffer(content));
      await setImmediate();
      hasEnded = true;
    };
    const { body, end } = sending({ idle, onFile });
    body.write(partOf(file).slice(0, -4));
    await begun.promise;
    if (idle === 60_000) body.destroy();
    await t.throwsAsync(end, { name: 'Aborted', message });
    t.true(hasEnded);
  }
  const request = Object.assign(new PassThrough().destroy(), { headers: {} }) as unknown as IncomingMessage;
  await t.throwsAsync(readMultipart(request, {} as never), closed);
});
