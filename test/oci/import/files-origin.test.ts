import { Readable } from 'node:stream';
import test from 'ava';
import type { ImageOrigin } from '../../../src/oci/import/image-origin.ts';
import { layoutOrArchive, registryFolder } from '../../../src/oci/import/files-origin.ts';
import { digestOf, hexOf, type Digest } from '../../../src/runtime/digest.ts';
import type { PlainFile } from '../../../src/prefetch/plain.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { plainFile, plainFolder } from '../../support/plain-files.ts';

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of items) found.push(each);
  return found;
}

const ociImage = 'application/vnd.oci.image.manifest.v1+json';
const manifestOf = (more: object = {}) => JSON.stringify({ schemaVersion: 2, mediaType: ociImage, ...more });
const digestIn = (text: string) => digestOf(Buffer.from(text));
const dataAt = (digest: Digest) => `blobs/sha256/${hexOf(digest).slice(0, 2)}/${hexOf(digest)}/data`;

/** The files of a docker-registry below `root`. */
function registryFiles(root: string) {
  const files: Record<string, string | PlainFile> = {};
  const at = (name: string) => `${root}repositories/${name}/_manifests`;
  return {
    files,
    blob: (text: string): Digest => {
      const digest = digestIn(text);
      files[root + dataAt(digest)] = text;
      return digest;
    },
    tag: (name: string, tag: string, link: string, changedAt?: number) => {
      files[`${at(name)}/tags/${tag}/current/link`] = plainFile(link, changedAt);
    },
    past: (name: string, tag: string, digest: Digest, changedAt?: number) => {
      files[`${at(name)}/tags/${tag}/index/sha256/${hexOf(digest)}/link`] = plainFile(digest, changedAt);
    },
    revision: (name: string, digest: Digest) => {
      files[`${at(name)}/revisions/sha256/${hexOf(digest)}/link`] = digest;
    },
  };
}

/** What a staged file got. */
async function filled(origin: ImageOrigin, digest: Digest, limit: number) {
  const got: unknown[] = [];
  const append = async (body: Readable, options: unknown) => {
    const pieces: Buffer[] = [];
    for await (const each of body as AsyncIterable<Buffer>) pieces.push(each);
    if (body.readableObjectMode) throw new Error('a body is a stream of bytes');
    got.push(Buffer.concat(pieces).toString(), options);
  };
  await origin.fill('any', digest, { append } as unknown as StagedFile, limit);
  return got;
}

test('the folder of a registry has the repositories, tags and manifests of its links, wherever it begins', async (t) => {
  for (const root of ['', 'docker/registry/v2/']) {
    const { files, blob, tag, revision } = registryFiles(root);
    const [one, two] = [blob(manifestOf()), blob(manifestOf({ a: 1 }))];
    const foreign = blob(manifestOf({ a: 2 }));
    tag('team/app', '1.0', `${one}\n`, 1000);
    tag('team/app', '2.0', two);
    tag('team/app', 'wrong', 'no digest');
    tag('team/app', 'lost', digestIn('lost'));
    tag('team/app', '-x', one);
    tag('Team', '1.0', one);
    for (const each of [one, two, digestIn('lost')]) revision('team/app', each);
    revision('other', foreign);
    revision('Other', foreign);
    files[`${root}repositories/other/_manifests/revisions/sha256/12/link`] = foreign;
    files[`${root}repositories/other/_manifests/revisions/sha256/${hexOf(two)}/link.old`] = two;
    files[`${root}repositories/team/app/_manifests/tags/1.0/index/sha256/${hexOf(two)}/link.old`] = plainFile(two, 5);
    const origin = (await registryFolder(plainFolder(files), 100))!;
    t.deepEqual(await all(origin.repositories()), ['team/app', 'other']);
    t.deepEqual(await all(origin.tags('team/app')), [
      { tag: '1.0', pushedAt: 1000 },
      { tag: '2.0', pushedAt: undefined },
      { tag: 'wrong', pushedAt: undefined },
      { tag: 'lost', pushedAt: undefined },
    ]);
    t.deepEqual([await all(origin.tags('other')), await all(origin.tags('none'))], [[], []]);
    t.deepEqual([await origin.digestOf('team/app', '1.0'), await origin.digestOf('team/app', '2.0')], [one, two]);
    t.is(await origin.digestOf('team/app', 'none'), undefined);
    t.is(await origin.digestOf('none', '1.0'), undefined);
    await t.throwsAsync(origin.digestOf('team/app', 'wrong'), {
      name: 'Invalid',
      message: 'The link of this tag has no digest.',
    });
    const bytes = Buffer.from(manifestOf());
    t.deepEqual(await origin.manifest('team/app', '1.0'), { digest: one, bytes, mediaType: undefined });
    t.deepEqual(await origin.manifest('team/app', one), { digest: one, bytes, mediaType: undefined });
    for (const [name, reference] of [
      ['team/app', foreign],
      ['team/app', 'none'],
      ['team/app', 'lost'],
      ['other', one],
      ['other', two],
    ] as const)
      t.is(await origin.manifest(name, reference), undefined, reference);
    t.deepEqual((await origin.manifest('other', foreign))?.digest, foreign);
    t.deepEqual(await origin.past!('team/app', '1.0'), []);
  }
});

test('a folder without a link of a tag is no registry', async (t) => {
  const { files, past, revision } = registryFiles('');
  revision('app', digestIn('a'));
  past('app', '1', digestIn('a'), 5);
  files['repositories/app/_manifests/tags/1/current/link.old'] = digestIn('a');
  t.is(await registryFolder(plainFolder(files), 100), undefined);
});

test('a link or a manifest that is too large is refused, one with other bytes, too', async (t) => {
  const { files, blob, tag, revision } = registryFiles('');
  const large = blob(manifestOf({ text: 'x'.repeat(100) }));
  const fits = blob(manifestOf({ text: 'x'.repeat(20) }));
  const size = manifestOf({ text: 'x'.repeat(20) }).length;
  const other = digestIn('other');
  files[dataAt(other)] = 'others';
  for (const [name, digest] of Object.entries({ large, fits, other })) {
    tag('app', name, digest);
    revision('app', digest);
  }
  tag('app', 'long', `${fits}${' '.repeat(1024 - fits.length)}`);
  tag('app', 'longer', `${fits}${' '.repeat(1025 - fits.length)}`);
  const origin = (await registryFolder(plainFolder(files), size))!;
  t.is((await origin.manifest('app', 'fits'))?.digest, fits);
  await t.throwsAsync(origin.manifest('app', 'large'), {
    name: 'TooLarge',
    message: `The manifest ${large} is too large.`,
  });
  await t.throwsAsync(origin.manifest('app', 'other'), {
    name: 'DigestMismatch',
    message: `The source sent other content under ${other}.`,
  });
  t.is(await origin.digestOf('app', 'long'), fits);
  await t.throwsAsync(origin.digestOf('app', 'longer'), { message: 'content is larger than 1024 bytes' });
});

const sized = (text: string) => ({ mediaType: ociImage, size: manifestOf({ text }).length });

test('the past of a tag: manifests that it had until it got its present one, the earliest first, the latest 200', async (t) => {
  const { files, blob, tag, past, revision } = registryFiles('');
  const made = (text: string, more: object = {}) => {
    const digest = blob(manifestOf({ text, ...more }));
    revision('app', digest);
    return digest;
  };
  const now = made('now');
  tag('app', '1', now, 1000);
  tag('app', 'timeless', now);
  const [late, early, same, timeless] = [made('late'), made('early'), made('same'), made('timeless')];
  past('app', '1', late, 900);
  past('app', '1', early, 100);
  past('app', '1', same, 1000);
  past('app', '1', timeless);
  past('app', '1', now, 500);
  past('app', '1', made('later'), 1001);
  past('app', '1', digestIn('deleted'), 200);
  past('app', '1', made('odd', { schemaVersion: 1 }), 200);
  past('app', '1', made('values', { layers: Array.from({ length: 40_000 }, () => 0) }), 200);
  past('app', 'gone', early, 5);
  past('app', 'timeless', late, 5000);
  const origin = (await registryFolder(plainFolder(files), 2 ** 20))!;
  t.deepEqual(await origin.past!('app', '1'), [
    { digest: early, seenAt: 100, content: sized('early') },
    { digest: late, seenAt: 900, content: sized('late') },
    { digest: same, seenAt: 1000, content: sized('same') },
  ]);
  t.deepEqual(await origin.past!('app', 'timeless'), [{ digest: late, seenAt: 5000, content: sized('late') }]);
  t.deepEqual([await origin.past!('app', 'none'), await origin.past!('none', '1')], [[], []]);
  t.deepEqual(
    (await all(origin.tags('app'))).map((each) => each.tag),
    ['1', 'timeless'],
    'a tag that was deleted has left its past',
  );
  const many = registryFiles('');
  many.tag('app', '1', now, 1000);
  for (let at = 0; at < 201; at += 1) {
    const digest = many.blob(manifestOf({ at }));
    many.revision('app', digest);
    many.past('app', '1', digest, at);
  }
  const found = await (await registryFolder(plainFolder(many.files), 2 ** 20))!.past!('app', '1');
  t.deepEqual([found.length, found[0]!.seenAt, found.at(-1)!.seenAt], [200, 1, 200]);
});

test('referrers are found by the subjects of the manifests of their repository', async (t) => {
  const { files, blob, tag, revision } = registryFiles('');
  const made = (name: string, more: object) => {
    const digest = blob(manifestOf(more));
    revision(name, digest);
    return digest;
  };
  const subject = { digest: digestIn('subject') };
  const first = made('app', { at: 1, subject });
  made('app', { at: 2, subject: null });
  made('app', { at: 3, subject: { digest: 5 } });
  made('app', { at: 4, subject, layers: Array.from({ length: 40_000 }, () => 0) });
  const large = made('app', { subject, text: 'x'.repeat(2 ** 20) });
  const second = made('app', { at: 5, subject });
  const other = made('app', { at: 6, subject: { digest: first } });
  const beside = made('beside', { at: 7, subject });
  const broken = digestIn('broken');
  files[dataAt(broken)] = 'no JSON';
  revision('app', broken);
  tag('app', '1', first);
  const origin = (await registryFolder(plainFolder(files), 2 ** 20))!;
  t.deepEqual(await origin.referrers('app', subject.digest), [first, second]);
  t.deepEqual(await origin.referrers('app', first), [other]);
  t.deepEqual(await origin.referrers('app', large), []);
  t.deepEqual(await origin.referrers('beside', subject.digest), [beside]);
  t.deepEqual(await origin.referrers('app', subject.digest), [first, second]);
  t.deepEqual(await origin.referrers('none', subject.digest), []);
});

test('a blob of files is written within its limit, or is missing', async (t) => {
  const { files, blob, tag } = registryFiles('');
  tag('app', '1', blob(manifestOf()));
  const origin = (await registryFolder(plainFolder({ ...files, [dataAt(digestIn('layer'))]: 'layer' }), 100))!;
  t.deepEqual(await filled(origin, digestIn('layer'), 7), ['layer', { limit: 7 }]);
  await t.throwsAsync(filled(origin, digestIn('none'), 7), {
    name: 'NotFound',
    message: `The source does not have ${digestIn('none')}, which the image needs.`,
  });
});

test('an image layout has its images by their names, or by the name that is given, and their blobs', async (t) => {
  const [one, two] = [manifestOf({ a: 1 }), manifestOf({ a: 2 })];
  const blobAt = (text: string) => `blobs/sha256/${hexOf(digestIn(text))}`;
  const containerd = 'io.containerd.image.name';
  const ref = 'org.opencontainers.image.ref.name';
  const layout = (manifests: unknown, more: Record<string, string> = {}) =>
    plainFolder({ 'oci-layout': '{}', 'index.json': JSON.stringify({ manifests }), [blobAt(one)]: one, ...more });
  const manifests = [
    { digest: digestIn(one), annotations: { [containerd]: 'old.test/team/app:1', [ref]: 'other' } },
    { digest: digestIn(two), annotations: { [ref]: 'team/app:2' } },
    { digest: digestIn(one), annotations: { [ref]: '3' } },
    { digest: digestIn(one) },
    { digest: digestIn(one), annotations: { [ref]: 'team/app:2@x' } },
  ];
  const origin = (await layoutOrArchive(layout(manifests.slice(0, 4), { [blobAt('layer')]: 'layer' }), 'given', 100))!;
  const tagsOf = async (of: ImageOrigin, name: string) => {
    const tags = (await all(of.tags(name))).map((each) => each.tag);
    return Promise.all(tags.map(async (tag) => [tag, await of.digestOf(name, tag)]));
  };
  t.deepEqual(await all(origin.repositories()), ['team/app', 'given']);
  t.deepEqual(await tagsOf(origin, 'team/app'), [
    ['1', digestIn(one)],
    ['2', digestIn(two)],
  ]);
  t.deepEqual(await tagsOf(origin, 'given'), [
    ['3', digestIn(one)],
    ['latest', digestIn(one)],
  ]);
  t.deepEqual((await origin.manifest('team/app', '1'))?.bytes, Buffer.from(one));
  t.is(await origin.manifest('team/app', '2'), undefined, 'the layout lacks it');
  t.deepEqual(await filled(origin, digestIn('layer'), 9), ['layer', { limit: 9 }]);
  t.deepEqual(await origin.referrers('team/app', digestIn(one)), []);
  t.deepEqual(await origin.past!('team/app', '1'), []);
  const refused = (given: unknown, name: string | undefined, message: string) =>
    t.throwsAsync(layoutOrArchive(layout(given), name, 100), { name: 'Invalid', message });
  await refused([{ digest: 'sha256:12' }], 'given', 'images: index.json has no digest');
  await refused([{}], 'given', 'images: index.json has no digest');
  await refused(manifests.slice(3), undefined, 'images: it has an image without a name: give it with --name');
  await refused(manifests.slice(4), undefined, 'images: it has an image without a name: give it with --name');
  await refused(manifests.slice(3), `a@${digestIn(one)}`, 'images: it has an image without a tag: give it with --name');
  await refused(
    [{ digest: digestIn(one) }, { digest: digestIn(one) }, { digest: digestIn(two) }],
    'given:5',
    'images: two of its images would be given:5 here. If they have tags of their own, give --name without a tag; else divide them',
  );
  t.deepEqual(await all((await layoutOrArchive(layout(undefined), undefined, 100))!.repositories()), []);
  await t.throwsAsync(layoutOrArchive(plainFolder({ 'oci-layout': '{}', 'index.json': 'x' }), undefined, 100), {
    name: 'Invalid',
    message: 'images: index.json is not JSON',
  });
  const large = plainFolder({ 'oci-layout': '{}', 'index.json': `{}${' '.repeat(4 * 2 ** 20)}` });
  await t.throwsAsync(layoutOrArchive(large, undefined, 100), {
    name: 'Invalid',
    message: 'images: index.json cannot be read: content is larger than 4194304 bytes',
  });
});

const described = (mediaType: string, text: string) => ({ mediaType, size: text.length, digest: digestIn(text) });

test('an archive of docker save has its images under all of their tags, with manifests that are made of its files', async (t) => {
  const files = { 'c.json': 'config', 'l/1.tar': 'layer', 'l/2.tar': 'more' };
  const archive = (list: unknown) => plainFolder({ ...files, 'manifest.json': JSON.stringify(list) });
  const image = { Config: 'c.json', Layers: ['l/1.tar', 'l/2.tar'], RepoTags: ['team/app:1', 'team/app:2', 'b'] };
  const bare = { Config: 'c.json', Layers: ['l/2.tar'] };
  await t.throwsAsync(
    layoutOrArchive(archive([image, bare, { ...bare, Layers: null, RepoTags: [] }]), 'given:7', 1000),
    {
      name: 'Invalid',
      message:
        'images: two of its images would be given:7 here. If they have tags of their own, give --name without a tag; else divide them',
    },
  );
  const found = (await layoutOrArchive(archive([image, { ...bare, RepoTags: null }]), 'given:7', 1000))!;
  t.deepEqual(await all(found.repositories()), ['team/app', 'b', 'given']);
  const layer = 'application/vnd.docker.image.rootfs.diff.tar';
  const manifest = (...layers: string[]) => ({
    schemaVersion: 2,
    mediaType: 'application/vnd.docker.distribution.manifest.v2+json',
    config: described('application/vnd.docker.container.image.v1+json', 'config'),
    layers: layers.map((each) => described(layer, each)),
  });
  for (const [name, tag, layers] of [
    ['team/app', '1', ['layer', 'more']],
    ['team/app', '2', ['layer', 'more']],
    ['b', 'latest', ['layer', 'more']],
    ['given', '7', ['more']],
  ] as const) {
    const { bytes, digest } = (await found.manifest(name, tag))!;
    t.deepEqual(JSON.parse(bytes.toString()), manifest(...layers));
    t.deepEqual([digest, await found.digestOf(name, tag)], [digestOf(bytes), digest]);
  }
  for (const text of ['config', 'layer', 'more']) t.deepEqual((await filled(found, digestIn(text), 9))[0], text);
  const empty = (await layoutOrArchive(archive([{ Config: 'c.json', RepoTags: ['a'] }]), undefined, 1000))!;
  t.deepEqual(JSON.parse((await empty.manifest('a', 'latest'))!.bytes.toString()), manifest());
  for (const [wrong, name] of [
    [{ ...bare, Layers: ['none'] }, '"none"'],
    [{ ...bare, Config: 'none' }, '"none"'],
    [{ ...bare, Config: 7 }, '7'],
  ] as const)
    await t.throwsAsync(layoutOrArchive(archive([wrong]), 'given', 1000), {
      name: 'Invalid',
      message: `images: ${name} is missing`,
    });
  t.is(await layoutOrArchive(archive({}), 'given', 1000), undefined);
  t.is(await layoutOrArchive(plainFolder(files), 'given', 1000), undefined);
  t.is(await layoutOrArchive(plainFolder({ 'oci-layout': '{}' }), 'given', 1000), undefined);
  t.is(await layoutOrArchive(plainFolder({ 'index.json': '{}' }), 'given', 1000), undefined);
});
