import test from 'ava';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { contentsOf, selectPlatforms } from '../../../src/oci/prefetch/image-contents.ts';
import { digestOf } from '../../../src/runtime/digest.ts';

const [a, b, c] = ['a', 'b', 'c'].map((each) => digestOf(each)) as [string, string, string];
const linux = { os: 'linux', architecture: 'amd64' };

test('an image needs its config and those of its layers that are not elsewhere', (t) => {
  const foreign = 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip';
  const layers = [
    { digest: b, size: 5 },
    { digest: c, mediaType: foreign, size: 1 },
    { digest: c, urls: ['https://elsewhere.test'], size: 1 },
    { digest: c, urls: [], size: -1 },
    { digest: a, size: 1.5, mediaType: 1, urls: 'none' },
    { digest: 'wrong' },
    { digest: 1 },
    null,
  ];
  t.deepEqual(contentsOf({ config: { digest: a, size: 1 }, layers }), {
    manifests: [],
    blobs: [
      { digest: a, size: 1 },
      { digest: b, size: 5 },
      { digest: c, size: 0 },
      { digest: a, size: 0 },
    ] as ReturnType<typeof contentsOf>['blobs'],
  });
  for (const layers of ['none', null, {}]) t.deepEqual(contentsOf({ layers }), { manifests: [], blobs: [] });
});

test('an index needs its manifests, and one of a build cache its blobs', (t) => {
  const manifests = [
    { digest: a, size: 3, mediaType: mediaTypes.image, platform: { ...linux, variant: 'v2' } },
    { digest: b, platform: { ...linux, variant: '' }, annotations: { 'vnd.docker.reference.digest': a } },
    { digest: c, platform: { os: 'linux' }, annotations: { 'vnd.docker.reference.digest': 1 } },
    { digest: c, platform: { architecture: 'arm' }, mediaType: 1 },
    { digest: a, platform: { ...linux, variant: 8 } },
    { digest: c, size: 9, mediaType: 'application/vnd.buildkit.cacheconfig.v0' },
    { digest: 'wrong' },
    null,
  ];
  const nothing = { size: 0, platform: undefined, subject: undefined };
  t.deepEqual(contentsOf({ manifests }) as unknown, {
    manifests: [
      { digest: a, size: 3, platform: { ...linux, variant: 'v2' }, subject: undefined },
      { digest: b, size: 0, platform: { ...linux, variant: undefined }, subject: a },
      { digest: c, ...nothing },
      { digest: c, ...nothing },
      { digest: a, ...nothing, platform: { ...linux, variant: undefined } },
    ],
    blobs: [{ digest: c, size: 9 }],
  });
});

const child = (text: string, architecture: string | undefined, subject?: string) => ({
  digest: digestOf(text),
  size: 1,
  platform: architecture === undefined ? undefined : { os: 'linux', architecture, variant: undefined },
  subject,
});

test('the manifests of some platforms come with those without one, and with their attestations', (t) => {
  const [amd, arm, any] = [child('amd', 'amd64'), child('arm', 'arm'), child('any', undefined)];
  const [ofAmd, ofArm] = [child('1', undefined, amd.digest), child('2', 'amd64', arm.digest)];
  const all = [ofAmd, amd, arm, any, ofArm];
  const wanted = { ...linux, variant: undefined };
  t.deepEqual(selectPlatforms(all, []), all);
  t.deepEqual(selectPlatforms(all, [wanted]), [amd, any, ofAmd]);
  t.deepEqual(selectPlatforms(all, [wanted, { ...wanted, architecture: 'arm' }]), [amd, arm, any, ofAmd, ofArm]);
  t.deepEqual(selectPlatforms(all, [{ ...wanted, architecture: 's390x' }]), [any]);
});
