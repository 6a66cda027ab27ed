import { generateKeyPairSync } from 'node:crypto';
import { mkdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import {
  countsIn,
  decodeList,
  encodeList,
  memberName,
  policyIn,
  refuseUnreadable,
  segmentName,
  type BundleBlob,
  type BundleEntry,
  type BundleList,
} from '../../src/bundle/format.ts';
import { isSealedBy, newKeyPair, readEnvelope, readPublicKey, readSigningKey, seal } from '../../src/bundle/keys.ts';
import { layoutOf } from '../../src/bundle/layout.ts';
import { readReceipt } from '../../src/bundle/receipt.ts';
import {
  isStatement,
  readKeyStatement,
  readRevocation,
  writeKeyStatement,
  writeRevocation,
} from '../../src/bundle/statements.ts';
import type { TrustedKeys } from '../../src/bundle/trust.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { bundleEntry } from '../support/bundles.ts';

// The documents of a bundle, without an installation.

const [a, b, c] = [digestOf('a'), digestOf('bb'), digestOf('ccc')];
const source = '11111111-1111-4111-8111-111111111111';

function entry(changes: Partial<BundleEntry> = {}): BundleEntry {
  return bundleEntry({ digest: a, type: 'application/json', validated_at: 7, ...changes });
}

const blobs: BundleBlob[] = [
  { digest: a, size: 1, segment: 2 },
  {
    digest: b,
    size: 2,
    parts: [
      { digest: digestOf('b'), size: 1, segment: 1 },
      { digest: digestOf('b'), size: 1, segment: 2 },
    ],
  },
  { digest: c, size: 3, base: true },
];

/** A list with each field that one can have. */
const list: BundleList & { knownBad: object[] } = {
  header: {
    format: 'entrepot-bundle',
    version: 1,
    source,
    audience: source,
    created_at: 5,
    sequence: 6,
    expires_at: 8,
    against: c,
    segments: 2,
    blob_count: 3,
    entry_count: 2,
    bytes: 3,
    policy: '{}',
    new_key: 'a statement',
    known_bad: [
      { name: 'one', records: 2 },
      { name: 'two', records: 1 },
    ],
  },
  blobs,
  entries: [
    entry(),
    entry({
      protocol: 'nuget',
      account: 'team',
      kind: 'nupkg',
      name: 'lib',
      reference: '1.0.0+x',
      digest: b,
      size: 2,
      etag: '"x"',
      modified: 'Wed, 01 Jan 2031 00:02:00 GMT',
      attributes: { id: 'Lib', version: '1.0+x', publishedAt: '1000' },
      seen: [
        { kind: 'version', reference: '1.0.0+x', digest: b, seenAt: 3, content: { mediaType: 'x', size: 2 } },
        { kind: 'listed', reference: '1.0.0+x', digest: '', seenAt: 4 },
      ],
      withdrawn: { missingAt: 1, withdrawnAt: null },
    }),
  ],
  knownBad: [
    { list: 'one', record: { id: 'M-1', more: true } },
    { list: 'one', record: { id: 'M-2' } },
    { list: 'two', record: { id: 'M-1' } },
  ],
};

const linesOf = (each: BundleList) => [...encodeList(each)].join('').trimEnd().split('\n');

test('a list is one JSON document, and is read again line by line', async (t) => {
  await refuseUnreadable(list);
  const { header, knownBad, entries } = list;
  const text = [...encodeList(list)].join('');
  t.deepEqual(JSON.parse(text), { ...header, blobs, entries, known_bad: knownBad });
  t.true(text.endsWith('\n}\n'));
  t.deepEqual(await decodeList(linesOf(list)), list);
  const { known_bad: _, new_key: __, ...few } = header;
  const small: BundleList = {
    header: { ...few, audience: null, expires_at: null, against: null, policy: null, blob_count: 0, entry_count: 0 },
    blobs: [],
    entries: [],
  };
  await refuseUnreadable(small);
  t.deepEqual(await decodeList(linesOf(small)), small);
  t.false([...encodeList(small)].join('').includes('known_bad'));
});

test('a list whose parts do not fit together is refused', async (t) => {
  const { header, entries } = list;
  const [whole, divided, base] = blobs as [BundleBlob, Extract<BundleBlob, { parts: unknown }>, BundleBlob];
  const oneSegment: BundleBlob = { ...divided, parts: [{ digest: digestOf('bb'), size: 2, segment: 1 }] };
  const changed: [BundleList, RegExp][] = [
    [{ ...list, header: { ...header, blob_count: 2 } }, /^bundle\.json does not have as many items as it says$/],
    [{ ...list, header: { ...header, entry_count: 3 } }, /^bundle\.json does not have as many items as it says$/],
    [{ ...list, knownBad: list.knownBad.slice(1) }, /^bundle\.json does not have as many items as it says$/],
    [{ ...list, blobs: [whole, divided, whole] }, /^bundle\.json names content twice$/],
    [{ ...list, entries: [entry({ size: 2 }), entries[1]!] }, /^bundle\.json lacks the content of app v1$/],
    [{ ...list, entries: [entry({ digest: digestOf('d') }), entries[1]!] }, /lacks the content of app v1$/],
    [
      { ...list, header: { ...header, segments: 1 }, blobs: [whole, oneSegment, base] },
      /^bundle\.json names a segment that the bundle does not have$/,
    ],
    [{ ...list, header: { ...header, segments: 1 } }, /^bundle\.json names a segment that the bundle does not have$/],
    [
      { ...list, header: { ...header, segments: 1 }, blobs: [{ ...whole, segment: 1 }, divided, base] },
      /names a segment that the bundle does not have$/,
    ],
    [
      { ...list, blobs: [whole, { ...divided, parts: divided.parts.slice(1) }, base] },
      /^the parts of sha256:[0-9a-f]{64} do not have its size$/,
    ],
  ];
  for (const [each, message] of changed)
    await t.throwsAsync(decodeList(linesOf(each)), { name: 'Invalid', message }, String(message));
});

test('a line that is none of a list is refused with its number', async (t) => {
  const lines = linesOf(list);
  const other = 'of bundle.json is not one that this version can read';
  const cases: [at: number, line: string, message: string][] = [
    [1, '{"', 'line 1 of bundle.json is not JSON'],
    [1, lines[0]!.replace('"version":1', '"version":2'), `line 1 ${other}`],
    [2, '"others":[', `line 2 ${other}`],
    [2, '', `line 2 ${other}`],
    [3, '{', 'line 3 of bundle.json is not JSON'],
    [3, '{"digest":"md5:x","size":1,"segment":1}', `line 3 ${other}`],
    [3, `{"digest":"${a}","size":-1,"segment":1}`, `line 3 ${other}`],
    [3, `{"digest":"${a}","size":1,"segment":0}`, `line 3 ${other}`],
    [3, `{"digest":"${a}","size":1,"segment":10000}`, `line 3 ${other}`],
    [3, `{"digest":"${a}","size":1,"parts":[]}`, `line 3 ${other}`],
    [3, `{"digest":"${a}","size":1,"base":false}`, `line 3 ${other}`],
    [8, '{}', `line 8 ${other}`],
    [12, '{"list":"one","record":{}}', `line 12 ${other}`],
  ];
  for (const [at, line, message] of cases)
    await t.throwsAsync(decodeList(lines.with(at - 1, line)), { name: 'Invalid', message }, line);
  await t.throwsAsync(decodeList([]), { name: 'Invalid', message: 'bundle.json is empty' });
});

test('what no line or list can hold is refused before it is written, with the name of the part', async (t) => {
  const { header } = list;
  const cases: [BundleList, string][] = [
    [
      { ...list, header: { ...header, policy: null, new_key: 'x'.repeat(8193) } },
      'the header of the list is too large for a bundle',
    ],
    [{ ...list, blobs: [{ digest: a, size: 1, segment: 10_000 }] }, `${a} is too large for a bundle`],
    [
      { ...list, knownBad: [{ list: 'one', record: { id: 'M-1', text: 'x'.repeat(2 ** 20) } }] },
      'the record M-1 of the list one is too large for a bundle',
    ],
  ];
  for (const [each, message] of cases) await t.throwsAsync(refuseUnreadable(each), { name: 'Invalid', message });
});

function badOf(text: string) {
  return { list: 'one', record: { id: 'M-1', text } };
}

/** A list with a line of this many characters. */
function sized(length: number): BundleList {
  const long = badOf('x'.repeat(length - JSON.stringify(badOf('')).length));
  return { ...list, knownBad: [long, ...list.knownBad.slice(1)] };
}

test('the longest line that can be written can be read', async (t) => {
  const longest = sized(2 ** 20 - 1);
  await refuseUnreadable(longest);
  t.deepEqual(await decodeList(linesOf(longest)), longest);
  await t.throwsAsync(refuseUnreadable(sized(2 ** 20)), { message: /^the record M-1 .* is too large for a bundle$/ });
  await t.throwsAsync(decodeList(linesOf(sized(2 ** 20))), { message: 'line 12 of bundle.json is too long' });
});

test('the content of a bundle is counted by what people call it', async (t) => {
  const sizes = { nupkg: 1, manifest: 10, blob: 100, tags: 1000, 'package-index': 10_000 };
  const some = Object.entries(sizes).map(([kind, size]) => entry({ kind, size }));
  t.deepEqual(await countsIn([...some, entry({ kind: 'nupkg', size: 5 })]), {
    packages: { count: 2, bytes: 6 },
    manifests: { count: 1, bytes: 10 },
    layers: { count: 1, bytes: 100 },
    documents: { count: 2, bytes: 11_000 },
  });
  t.is(segmentName(12), '0012.tar');
  t.is(memberName(a), `blobs/sha256/${a.slice(7)}`);
  t.is(memberName(a, 'parts'), `parts/sha256/${a.slice(7)}`);
  t.is(policyIn(undefined), undefined);
  t.is(policyIn({ mode: 'audit' }), '{\n  "mode": "audit"\n}');
  const long = { list: Array.from({ length: 20_000 }, () => 1) };
  t.is(policyIn(long), JSON.stringify(long));
});

const title = (name: string) => ({ 'org.opencontainers.image.ref.name': name });

test('a segment is an OCI layout with its images by tag and its packages as artifacts', async (t) => {
  const members = new Map<string, string>();
  const more = [
    entry({ reference: a }),
    entry({ kind: 'blob', reference: 'x' }),
    entry({ reference: 'elsewhere', digest: c }),
    entry({ account: 'team', reference: 'v2', attributes: { mediaType: 'application/other' } }),
  ];
  for await (const { name, size, pieces } of layoutOf([...list.entries, ...more], (digest) => digest !== c)) {
    const bytes = Buffer.concat(pieces);
    t.is(bytes.length, size);
    members.set(name, bytes.toString());
  }
  t.is(members.get('oci-layout'), '{"imageLayoutVersion":"1.0.0"}\n');
  const manifestType = 'application/vnd.oci.image.manifest.v1+json';
  const packageType = 'application/vnd.entrepot.nuget.v1';
  const index = JSON.parse(members.get('index.json')!);
  const { digest, size } = index.manifests[1];
  t.deepEqual(index, {
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [
      { mediaType: 'application/json', digest: a, size: 1, annotations: title('up.test/app:v1') },
      {
        mediaType: manifestType,
        artifactType: packageType,
        digest,
        size,
        annotations: title('team/lib:1.0.0_x'),
      },
      { mediaType: 'application/other', digest: a, size: 1, annotations: title('team/app:v2') },
    ],
  });
  const manifest = members.get(memberName(digest))!;
  t.is(digestOf(manifest), digest);
  t.is(manifest.length, size);
  t.deepEqual(JSON.parse(manifest), {
    schemaVersion: 2,
    mediaType: manifestType,
    artifactType: packageType,
    config: { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf('{}'), size: 2 },
    layers: [{ mediaType: 'application/zip', digest: b, size: 2 }],
    annotations: {
      'com.entrepot.nuget.id': 'Lib',
      'com.entrepot.nuget.version': '1.0+x',
      'com.entrepot.nuget.upstream': 'team',
      'com.entrepot.nuget.published': '1970-01-01T00:00:01.000Z',
    },
  });
  const made = [memberName(digest), memberName(digestOf('{}'))].toSorted();
  t.deepEqual([...members.keys()], ['oci-layout', 'index.json', ...made]);
});

const pair = newKeyPair();
const signer = readSigningKey(pair.privateKey, 'own.key');

test('a key signs for itself only, and a signature is of one text and one type', (t) => {
  t.is(signer.id, pair.publicKey.id);
  t.deepEqual(readPublicKey(pair.publicKey.pem, 'own.pub'), pair.publicKey);
  const line = seal('text/a', Buffer.from('hello'), signer);
  t.true(line.endsWith('}\n'));
  const envelope = readEnvelope('text/a', line, 'place');
  t.is(envelope.payload.toString(), 'hello');
  t.true(isSealedBy('text/a', envelope, pair.publicKey));
  t.false(isSealedBy('text/b', envelope, pair.publicKey));
  t.false(isSealedBy('text/a', { ...envelope, payload: Buffer.from('hallo') }, pair.publicKey));
  const other = newKeyPair().publicKey;
  t.false(isSealedBy('text/a', envelope, other));
  const renamed = envelope.signatures.map((each) => ({ ...each, keyId: other.id }));
  t.false(isSealedBy('text/a', { ...envelope, signatures: renamed }, other), 'a name alone is no signature');
  t.false(isSealedBy('text/a', { ...envelope, signatures: renamed }, pair.publicKey), 'it names another key');
  t.deepEqual(readEnvelope('text/a', seal('text/a', Buffer.from('x'), undefined), 'place').signatures, []);
  for (const text of ['', 'null', '{}', line.replace('text/a', 'text/b'), line.replace('"payload"', '"other"')])
    t.throws(() => readEnvelope('text/a', text, 'place'), {
      name: 'Invalid',
      message: 'place: the statement that is signed cannot be read',
    });
});

const invalid = (message: string | RegExp) => ({ name: 'Invalid', message });

test('only Ed25519 keys are read, each kind in its own place', (t) => {
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const ecPrivate = ec.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const ecPublic = ec.publicKey.export({ type: 'spki', format: 'pem' }).toString();
  t.throws(() => readSigningKey('x', 'a.key'), invalid('a.key: this is no private key in PEM'));
  t.throws(() => readSigningKey(ecPrivate, 'a.key'), invalid('a.key: this is no Ed25519 key'));
  t.throws(() => readPublicKey('x', 'a.pub'), invalid('a.pub: this is no public key in PEM'));
  t.throws(() => readPublicKey(ecPublic, 'a.pub'), invalid('a.pub: this is no Ed25519 key'));
  t.throws(
    () => readPublicKey(pair.privateKey, 'a.key'),
    invalid(/^a\.key: this is a private key; give the public key/),
  );
});

test('statements about keys say what was signed, and none stands for another', (t) => {
  const { publicKey } = newKeyPair();
  const text = writeKeyStatement({ key: publicKey, role: 'receipts', expiresAt: 9 }, signer);
  const { envelope, ...stated } = readKeyStatement(text, 'place');
  t.deepEqual(stated, { key: publicKey, role: 'receipts', expiresAt: 9 });
  t.is(envelope.signatures[0]!.keyId, signer.id);
  const open = writeKeyStatement({ key: publicKey, role: null, expiresAt: null }, signer);
  t.like(readKeyStatement(open, 'place'), { role: null, expiresAt: null });
  const revocation = writeRevocation(publicKey.id, signer);
  t.is(readRevocation(revocation, 'place').id, publicKey.id);
  const noKey = { name: 'Invalid', message: 'place is no signed statement about a new key' };
  for (const each of [revocation, '', '{}', `${text}${' '.repeat(8192)}`])
    t.throws(() => readKeyStatement(each, 'place'), noKey);
  const noRevocation = { name: 'Invalid', message: 'place is no signed revocation of a key' };
  for (const each of [text, '', writeRevocation('a'.repeat(63), signer), writeRevocation(`x${publicKey.id}`, signer)])
    t.throws(() => readRevocation(each, 'place'), noRevocation);
  t.true(isStatement(` \n${text}`));
  t.false(isStatement(publicKey.pem));
});

test('a receipt is read as it was written, or refused', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'receipt');
  const asked: unknown[] = [];
  const trust = {
    signerOf: (...given: unknown[]) => {
      asked.push(given.slice(2));
      return Promise.resolve(undefined);
    },
  } as unknown as TrustedKeys;
  const type = 'application/vnd.entrepot.receipt.v1+json';
  const header = { format: 'entrepot-receipt', version: 1, installation: source, created_at: 5, digests: 2 };
  const read = async (body: string, id = digestOf(body)) => {
    await writeFile(file, seal(type, Buffer.from(JSON.stringify({ receipt: id })), undefined) + body);
    return readReceipt(trust, file);
  };
  const body = `${JSON.stringify(header)}\n${a}\n${b}\n`;
  const { digests, ...receipt } = await read(body);
  t.deepEqual(receipt, { id: digestOf(body), installation: source, createdAt: 5, key: undefined });
  t.deepEqual([digests.size, digests.has(a), digests.has(b), digests.has(c)], [2, true, true, false]);
  t.deepEqual(asked, [['receipts', `The receipt ${file}`]]);
  const unreadable = `${file} is no receipt that this version can read`;
  const cases: [body: string, message: string, id?: typeof a][] = [
    [body, `${file} was altered after it was written, or is damaged`, a],
    ['', unreadable],
    [`${JSON.stringify({ ...header, version: 2 })}\n${a}\n${b}\n`, unreadable],
    [`not JSON\n${a}\n${b}\n`, unreadable],
    [`${JSON.stringify({ ...header, digests: 3 })}\n${a}\n${b}\n`, unreadable],
    [`${JSON.stringify(header)}\n${a}\nnone\n`, `${file} has a line that is no digest`],
  ];
  for (const [each, message, id] of cases) await t.throwsAsync(read(each, id), { name: 'Invalid', message }, each);
  t.is((await read(body.trimEnd())).digests.size, 2, 'the last line needs no end');
  await truncate(file, 64 * 2 ** 20 + 1);
  await t.throwsAsync(readReceipt(trust, file), { name: 'Invalid', message: `${file} is no receipt` });
  await mkdir(join(folder, 'other'));
  await t.throwsAsync(readReceipt(trust, join(folder, 'other')), { name: 'Invalid', message: /other is no receipt$/ });
  await t.throwsAsync(readReceipt(trust, join(folder, 'none')), { name: 'Invalid', message: /none cannot be read: / });
});
