import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pack } from 'tar-stream';
import test, { type ExecutionContext } from 'ava';
import { readAll } from '../../../src/storage/files/content.ts';
import { openTar, TarWriter } from '../../../src/storage/files/tar.ts';
import { folderUntilEnd } from '../../support/folder.ts';

type Entry = Parameters<ReturnType<typeof pack>['entry']>[0];

/** A tar file with these members, whose content is their name. */
async function tarOf(...members: Entry[]): Promise<Buffer> {
  const made = pack();
  for (const each of members) made.entry(each, each.type === 'directory' ? '' : each.name);
  made.finalize();
  return buffer(made as never);
}

async function fileOf(t: ExecutionContext, bytes: Buffer): Promise<string> {
  const path = join(await folderUntilEnd(t), 'some.tar');
  await writeFile(path, bytes);
  return path;
}

/** Writes the checksum of a header that was changed. */
function sum(bytes: Buffer, at: number): Buffer {
  bytes.fill(' ', at + 148, at + 156);
  const total = bytes.subarray(at, at + 512).reduce((all, byte) => all + byte, 0);
  bytes.write(`${total.toString(8).padStart(6, '0')}\0 `, at + 148, 'latin1');
  return bytes;
}

function header(name: string, type: string, size: number): Buffer {
  const bytes = Buffer.alloc(512);
  bytes.write(name);
  bytes.write(`${size.toString(8).padStart(11, '0')}\0`, 124);
  bytes.write(type, 156);
  return sum(bytes, 0);
}

/** A member with this content, in blocks. */
function member(name: string, type: string, content: string): Buffer {
  const bytes = Buffer.alloc(Math.ceil(content.length / 512) * 512);
  bytes.write(content);
  return Buffer.concat([header(name, type, content.length), bytes]);
}

function pax(...records: readonly string[]): Buffer {
  return member('pax', 'x', records.join(''));
}

test('the members of a tar file are read by position, whatever the form of their names', async (t) => {
  const long = `${'folder/'.repeat(30)}file`;
  const other = `${'ü/'.repeat(20)}${'x'.repeat(90)}`;
  const bytes = await tarOf(
    { name: './first' },
    { name: 'folder', type: 'directory' },
    { name: long },
    { name: other },
    { name: '././again' },
    { name: 'in/./.hidden' },
    { name: '.hidden' },
    { name: 'last' },
  );
  await using tar = await openTar(await fileOf(t, bytes));
  t.deepEqual([...tar.members.keys()], ['first', long, other, 'again', 'in/./.hidden', '.hidden', 'last']);
  const written = new Map([
    ['first', './first'],
    ['again', '././again'],
  ]);
  for (const [name, member] of tar.members) {
    const content = (await readAll(tar.content(member), 1000)).toString();
    t.is(content, written.get(name) ?? name);
  }
  const content = tar.content(tar.members.get('first')!);
  const target = Buffer.alloc(100, '.');
  t.is(await content.read(target, 2), 5, 'nothing of what follows the member');
  t.is(target.toString('latin1', 0, 6), 'first.');
  t.is(await content.read(target, 7), 0);
  t.is(await content.read(target, 600), 0);
});

test('GNU forms of long names and large sizes are read', async (t) => {
  const [short, name] = [await tarOf({ name: 'short' }), Buffer.alloc(512)];
  const [begin, end] = [short.subarray(0, 1024), short.subarray(1024)];
  name.write('the/long/name');
  const longLink = Buffer.from(begin.subarray(0, 512));
  longLink.write('L', 156);
  longLink.write('00000000016\0', 124);
  const large = Buffer.from(begin);
  large.fill(0, 124, 136);
  large[124] = 0x80;
  large[135] = 5;
  await using tar = await openTar(await fileOf(t, Buffer.concat([sum(longLink, 0), name, sum(large, 0), end])));
  t.deepEqual([...tar.members], [['the/long/name', { position: 1536, size: 5 }]]);
  large.fill(0xff, 125, 136);
  await t.throwsAsync(openTar(await fileOf(t, Buffer.concat([sum(large, 0), end]))), { message: /it is truncated/ });
});

test('names come from the headers before a member, and from no others', async (t) => {
  const [time, path] = ['20 mtime=1000000000\n', '18 path=long/name\n'];
  for (const [what, before, name] of [
    ['a record after others', [pax(time, '22 linkpath=other/one\n', path)], 'long/name'],
    ['no record of a path', [pax(time)], 'short'],
    ['a record without a length', [pax('path=long/name\n')], 'short'],
    ['a length of nothing', [pax(`0 ${path}`)], 'short'],
    ['a length that is no number', [pax(`x ${path}`, path)], 'short'],
    ['a length that is no whole number', [pax('16.5 path=long/name\n')], 'short'],
    ['a global header', [member('pax', 'g', path)], 'short'],
    ['a long name, and records without a path', [member('L', 'L', 'gnu/name\0'), pax(time)], 'gnu/name'],
    ['a long name, and a global header', [member('L', 'L', 'gnu/name\0'), member('pax', 'g', path)], 'gnu/name'],
    ['a long name, and a path', [member('L', 'L', 'gnu/name\0'), pax(path)], 'long/name'],
    ['the longest name', [member('L', 'L', 'n'.repeat(65_536))], 'n'.repeat(65_536)],
  ] as const) {
    const bytes = [...before, member('short', '0', 'some'), member('old', '\0', 'old'), Buffer.alloc(1024)];
    await using tar = await openTar(await fileOf(t, Buffer.concat(bytes)));
    t.deepEqual([...tar.members.keys()], [name, 'old'], what);
    t.is((await readAll(tar.content(tar.members.get(name)!), 10)).toString(), 'some', what);
  }
});

test('a tar file that is damaged, cut or ambiguous is refused', async (t) => {
  const refusal = async (bytes: Buffer) => {
    const error = await t.throwsAsync(openTar(await fileOf(t, bytes)), { name: 'Invalid' });
    return error.message.replace(/^.*this is no complete tar file: /, '');
  };
  const whole = await tarOf({ name: 'one' }, { name: 'two' });
  const changed = (at: number, text: string) => {
    const bytes = Buffer.from(whole);
    bytes.write(text, at);
    return bytes;
  };
  t.is(await refusal(Buffer.alloc(0)), 'its end is missing');
  t.is(await refusal(whole.subarray(0, 2048)), 'its end is missing');
  t.is(await refusal(whole.subarray(0, 1300)), 'it is truncated');
  t.is(await refusal(whole.subarray(0, 514)), 'it is truncated');
  t.is(await refusal(changed(1024, 'x')), 'the header at 1024 is damaged');
  t.is(await refusal(sum(changed(124, '00000077777'), 0)), 'it is truncated');
  t.is(await refusal(sum(changed(124, '-0000000001'), 0)), 'it is truncated');
  t.is(await refusal(sum(changed(124, '00000000019'), 0)), 'it is truncated');
  await (await openTar(await fileOf(t, sum(changed(124, '         3 '), 0))))[Symbol.asyncDispose]();
  t.is(await refusal(member('whole', '0', 'x'.repeat(512))), 'its end is missing');
  t.is(await refusal(await tarOf({ name: 'same' }, { name: './same' })), 'it has two members of the name "same"');
  const long = await tarOf({ name: 'x'.repeat(66_000) });
  t.is(await refusal(long), 'the name at 0 is too long');
  const twice = { name: 'n'.repeat(201) };
  t.is(await refusal(await tarOf(twice, twice)), `it has two members of the name "${'n'.repeat(200)}"`);
});

test('the names of all members of files that are open together have a bound', async (t) => {
  const length = 65_000;
  const named = (index: number) => {
    const name = Buffer.alloc(Math.ceil(length / 512) * 512);
    name.fill(String(index).padStart(length, '0'), 0, length);
    return [header('././@LongLink', 'L', length), name, header('short', '0', 0)];
  };
  const members = Array.from({ length: 600 }, (_, index) => named(index)).flat();
  const path = await fileOf(t, Buffer.concat([...members, Buffer.alloc(1024)]));
  await using tar = await openTar(path);
  t.is(tar.members.size, 600);
  const second = async () => void (await openTar(path, tar.names));
  await t.throwsAsync(second, { name: 'Invalid', message: /: it has too many names, or too long ones$/ });
});

test('a tar file has its name only when it is complete', async (t) => {
  const path = join(await folderUntilEnd(t), 'made.tar');
  const part = () => readFile(`${path}.part`).then(String, () => undefined);
  {
    await using tar = await TarWriter.create(path, { mode: 0o600 });
    await tar.add('one', 3, [Buffer.from('one')]);
    await t.throwsAsync(TarWriter.create(path, { mode: 0o600 }), { code: 'EEXIST' });
  }
  t.deepEqual([await part(), await readFile(path).catch(() => undefined)], [undefined, undefined]);
  await writeFile(`${path}.part`, 'of a process that was killed', { mode: 0o600 });
  const large = Array.from({ length: 20 }, (_, index) => Buffer.alloc(50_000, `${index}`));
  const first = await TarWriter.create(path, { mode: 0o600, time: new Date(0), replaced: true });
  await first.add('two', 6, [Buffer.from('t'), Buffer.alloc(0), Buffer.from('wotwo')]);
  await first.add('large', 1_000_000, large);
  await first.finish();
  t.is(await part(), undefined);
  await using tar = await openTar(path);
  t.deepEqual(
    [...tar.members],
    [
      ['two', { position: 512, size: 6 }],
      ['large', { position: 1536, size: 1_000_000 }],
    ],
  );
  t.is((await readAll(tar.content(tar.members.get('two')!), 10)).toString(), 'twotwo');
  t.deepEqual(await readAll(tar.content(tar.members.get('large')!), 1_000_000), Buffer.concat(large));
  t.is((await stat(path)).mode & 0o777, 0o600);
  // Mode and time of a member, in octal digits.
  const made = (await readFile(path)).toString('latin1');
  t.deepEqual([made.slice(100, 107), made.slice(136, 147)], ['000600 ', '00000000000']);
  const second = await TarWriter.create(path, { mode: 0o600 });
  await first[Symbol.asyncDispose]();
  t.not(await part(), undefined, 'the part of another writer stays');
  await t.throwsAsync(second.add('three', 5, [Buffer.from('3')]), { message: 'Size mismatch' });
  await t.throwsAsync(second.finish());
  await second[Symbol.asyncDispose]();
  t.is(await part(), undefined);
  t.deepEqual(await readAll(tar.content(tar.members.get('two')!), 10), Buffer.from('twotwo'));
  t.deepEqual([...tar.members.keys()], ['two', 'large']);
});
