import test from 'ava';
import { haveSameContent } from '../../../src/nuget/import/same-content.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { writeZip } from '../../support/builders/zip.ts';

const signature = { name: '.signature.p7s', data: 'signed' };
const [a, b] = [
  { name: 'lib/a.dll', data: 'code' },
  { name: 'lib/b.dll', data: 'more' },
];

type Entries = Parameters<typeof writeZip>[0];

function opened(entries: Entries) {
  const zip = writeZip(entries);
  return async () => ({ ...contentOf(zip), size: zip.length });
}

test('two packages are the same if all their files have the same names and bytes, apart from signatures', async (t) => {
  const cases: [one: Entries, other: Entries, isSame: boolean][] = [
    [[a, b], [a, b], true],
    [[a, b], [b, a], true],
    [[a, b, signature], [a, b], true],
    [[a], [signature, a], true],
    [[a, signature], [a, { ...signature, data: 'signed by another one' }], true],
    [[], [], true],
    [[signature], [], true],
    [[a, b], [a], false],
    [[a], [a, b], false],
    [[a, b], [a, { ...b, name: 'lib/c.dll' }], false],
    [[a, b], [a, { ...b, data: 'mor' }], false],
    [[a, b], [a, { ...b, data: 'mora' }], false],
    [[a, b], [{ ...a, data: 'coda' }, b], false],
    [
      [
        { ...a, data: 'one' },
        { ...b, data: 'two' },
      ],
      [
        { ...a, data: 'two' },
        { ...b, data: 'one' },
      ],
      false,
    ],
    [[a, a], [a, a], false],
    [[a, b], [a, a], false],
    [[a], [a, a], false],
    [[a, a], [a], false],
    [[{ ...a, name: 'lib\\a.dll' }], [a], true],
    [[a], [{ ...a, name: 'lib\\a.dll' }], true],
  ];
  for (const [at, [one, other, isSame]] of cases.entries())
    t.is(await haveSameContent(opened(one), opened(other)), isSame, `case ${at}`);
});

test('both packages are closed, also if one of them cannot be read', async (t) => {
  const closed: string[] = [];
  const open = (name: string, bytes: Buffer) => async () => ({
    ...contentOf(bytes),
    size: bytes.length,
    close: () => void closed.push(name),
  });
  const [good, bad] = [writeZip([a]), Buffer.from('no zip')];
  t.true(await haveSameContent(open('one', good), open('other', good)));
  t.deepEqual([...new Set(closed)].toSorted(), ['one', 'other']);
  closed.length = 0;
  await t.throwsAsync(haveSameContent(open('one', good), open('other', bad)));
  t.deepEqual([...new Set(closed)].toSorted(), ['one', 'other']);
});
