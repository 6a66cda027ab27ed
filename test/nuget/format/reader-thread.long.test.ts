import test from 'ava';
import { parseNuspec } from '../../../src/nuget/format/nuspec.ts';
import { readNuspec } from '../../../src/nuget/format/nuspec-reading.ts';
import { read } from '../../../src/nuget/upstream/reading/readers.ts';
import { ReaderThread } from '../../../src/runtime/reader-thread.ts';
import { makeNuspec } from '../../support/builders/nupkg.ts';
import { longestTurn } from '../../support/longest-turn.ts';

// In a process of its own: it measures the process.

const sender = { of: 'upstream', id: 'public' } as const;
const bytesOf = (value: unknown) => Buffer.from(JSON.stringify(value));
const numbers = (count: number) => Array.from({ length: count }, (_, patch) => `1.0.${patch}`);

test('a document is read in the same way at once and in a thread', async (t) => {
  const few = ['1.0.10', '1.0.9', '2.0', '2.0.0.0', 'wrong', 7, '1.0.0-B', '1.0.0-a+x'];
  const many = [...few, ...Array.from({ length: 20_000 }, () => '1.0.9')];
  t.true(bytesOf(many).length > 64 * 1024);
  const inOrder = ['1.0.0-a', '1.0.0-b', '1.0.9', '1.0.10', '2.0.0'];
  t.deepEqual(await read('flat', bytesOf({ versions: few }), {}, sender), inOrder);
  t.deepEqual(await read('flat', bytesOf({ versions: many }), {}, sender), inOrder);
  t.deepEqual(await read('flat', bytesOf({ versions: [] }), {}, sender), []);
});

test('a document of another form is refused with the reason, and the thread goes on', async (t) => {
  const long = 'x'.repeat(100_000);
  const wrong = [bytesOf({ versions: long }), bytesOf(long), Buffer.from(`{"versions":[],"${long}`)];
  for (const bytes of [...wrong, bytesOf({ versions: 1 }), Buffer.from('{')])
    await t.throwsAsync(read('flat', bytes, {}, sender), { message: /JSON/ });
  const versions = numbers(20_000);
  t.deepEqual(await read('flat', bytesOf({ versions }), {}, sender), versions);
});

test('lines of any length and with any characters are those of the document', async (t) => {
  const ids = Array.from({ length: 3000 }, (_, each) => `Größe.${each}.${'🐧'.repeat(each % 50)}`);
  const page = Object.fromEntries(ids.map((id, each) => [id, each === 1000 ? ['ü'.repeat(300_000)] : ['\n', each]]));
  const lines = ids.flatMap((id) => [JSON.stringify(id), JSON.stringify(page[id])]);
  t.deepEqual(await read('vulnerabilities', bytesOf(page), {}, sender), lines);
});

test('readings wait for each other, and no turn of the event loop is long', async (t) => {
  const documents = [1, 2, 3].map((each) =>
    bytesOf({ versions: numbers(30_000).map((version) => `${version}-${each}`) }),
  );
  const turn = await longestTurn(async () => {
    const lists = await Promise.all(documents.map((bytes) => read('flat', Buffer.from(bytes), {}, sender)));
    lists.forEach((list, index) => t.is(list.at(-1), `1.0.29999-${index + 1}`));
  });
  t.true(turn < 50, `${turn} ms`);
});

test('a thread that takes too much memory is ended, and the next reading has a new one', async (t) => {
  // Each pair of brackets becomes an object.
  const bytes = Buffer.from(`{"versions":[${'[],'.repeat(12 * 2 ** 20)}[]]}`);
  await t.throwsAsync(read('flat', bytes, {}, sender), { message: /within 512 MiB of memory|within 15 seconds|JSON/ });
  t.deepEqual(await read('flat', bytesOf({ versions: numbers(20_000) }), {}, sender), numbers(20_000));
});

test('a thread that cannot start does not count as a wrong document', async (t) => {
  const thread = new ReaderThread(new URL('missing.ts', import.meta.url).href);
  const error = await t.throwsAsync(thread.read(Buffer.from('{}'), {}), { name: 'TooManyRequests' });
  t.is(error.message, 'The content could not be read: the thread that reads failed. Try again.');
});

test('a long nuspec is read as a short one is, and refused for the same reasons', async (t) => {
  const dependencies = Array.from({ length: 5000 }, (_, each) => ({ id: `Some.${each}`, version: '[1.0, 2.0)' }));
  const long = Buffer.from(makeNuspec({ id: 'Long', dependencies, license: { type: 'expression', value: 'MIT' } }));
  t.true(long.length > 100_000);
  const expected = JSON.parse(JSON.stringify(parseNuspec(long))) as unknown;
  t.deepEqual(await readNuspec(long), expected, 'in a thread');
  t.deepEqual(await readNuspec(long), expected, 'kept');
  const foreign = Buffer.from(makeNuspec({ id: 'Größe', description: 'x'.repeat(20_000) }));
  t.is((await readNuspec(foreign)).id, 'Größe');
  await t.throwsAsync(readNuspec(foreign, { asciiOnly: true }), { name: 'PackageInvalid', message: /ASCII letters/ });
  await t.throwsAsync(readNuspec(Buffer.from(`<package>${'x'.repeat(20_000)}`)), {
    name: 'PackageInvalid',
    message: /not well-formed XML/,
  });
});
