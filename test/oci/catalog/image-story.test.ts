import test from 'ava';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import { attachedKind, cosignTags } from '../../../src/oci/catalog/attached.ts';
import { imageNames } from '../../../src/oci/catalog/image-names.ts';
import { imageStory } from '../../../src/oci/catalog/image-story.ts';
import { RepositoryNames } from '../../../src/oci/mirrored/repository-names.ts';
import { listedName, type UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

// Where an account gets an image from, and what names and types mean.

const upstream = {
  id: 'up',
  name: 'up.test',
  config: { include: ['*'], exclude: ['up.test/excluded'], default: true },
  serves: () => true,
} as unknown as Upstream;
const policy = new UpstreamPolicy([upstream], undefined, ['corp/*']);
const digest = `sha256:${'a'.repeat(64)}` as Digest;

/** A mirror with one upstream, and an account 7 that has claimed names; null for a name whose first push goes on. */
function setUp(claimed: Record<string, number | null> = {}) {
  const asked: unknown[] = [];
  const database = {
    selectCached: (_sql: string, [accountId, ...names]: (string | number)[]) => {
      const rows = Object.entries(claimed).map(([name, claimed_at]) => ({ name, claimed_at }));
      return Promise.resolve(accountId === 7 ? rows.filter(({ name }) => names.includes(name)) : []);
    },
  };
  const mirror = {
    names: new RepositoryNames(policy),
    nameOf: (place: UpstreamRepository) => ({ shown: [listedName(place), 'another name'] }),
    digestOf: (place: UpstreamRepository, tag: string) => {
      asked.push([place.name, tag]);
      return Promise.resolve(digest);
    },
  };
  return { database, mirror, asked };
}

async function story(name: string, claimed?: Record<string, number | null>) {
  const { database, mirror, asked } = setUp(claimed);
  const told = await imageStory(database as never, mirror as never, 7, name);
  const { isHosted, reservedBy, missing, spellings, nameThere, policyName, upstreams } = told;
  const rules = upstreams.map(({ upstream: { id }, rule, pattern }) => [id, rule, pattern]);
  const reference = async (text: string) => (await told.referenceTo!(text)) as unknown;
  const fields = { isHosted, reservedBy, missing, spellings, nameThere, policyName, rules };
  return { told: fields, reference, digestOf: (tag: string) => told.digestOf!(tag), asked };
}

const common = { isHosted: false, reservedBy: undefined, missing: undefined };

test('the story of an image that its upstream is asked for', async (t) => {
  const { told, reference, digestOf, asked } = await story('app');
  t.deepEqual(told, {
    ...common,
    rules: [['up', 'asked', undefined]],
    spellings: ['app', 'up.test/app'],
    nameThere: 'app',
    policyName: 'up.test/app',
  });
  const name = { shown: ['up.test/app', 'another name'] };
  t.deepEqual(await reference('v1'), { name, reference: 'v1' });
  t.deepEqual(await reference(digest), { name, reference: digest });
  t.is(await reference('no tag'), undefined);
  t.is(await digestOf('v1'), digest);
  t.deepEqual(asked, [['app', 'v1']]);
});

test('the story of an image that the account hosts, or that no upstream may be asked for', async (t) => {
  const hosted = await story('app', { 'up.test/app': 5 });
  t.like(hosted.told, { isHosted: true, rules: [['up', 'hosted', undefined]], policyName: undefined });
  t.is(await hosted.reference('v1'), undefined);
  const arriving = await story('app', { app: null });
  t.like(arriving.told, { isHosted: false, policyName: 'up.test/app' });
  const reserved = await story('corp/app', { 'corp/app': 5 });
  t.like(reserved.told, { isHosted: true, reservedBy: 'corp/*', rules: [['up', 'reserved', 'corp/*']] });
  const excluded = await story('excluded');
  t.like(excluded.told, { nameThere: 'excluded', policyName: undefined });
  t.deepEqual(excluded.told.rules, [['up', 'excluded', 'up.test/excluded']]);
  t.is(await excluded.reference('v1'), undefined);
  t.is(await excluded.digestOf('v1'), undefined);
  t.deepEqual(excluded.asked, []);
  await t.throwsAsync(story('Not/A/Name'), {
    name: 'Invalid',
    message: 'name: expected the name of an image, such as team/api',
  });
});

test('the names of an account are those that it claims, and those that are mirrored', async (t) => {
  const { database, mirror } = setUp({ 'up.test/app': 5, base: null });
  const asked: unknown[] = [];
  const mirrored = {
    list: (...given: unknown[]) => {
      asked.push(given);
      return Promise.resolve([{ name: 'up.test/app', tags: [] }, { name: 'up.test/base' }]);
    },
  };
  const mirrors = { of: (accountId: number) => (accountId === 7 ? mirror : undefined) };
  const names = imageNames(database as never, mirrors as never, mirrored as never);
  t.is(names.kind, 'container');
  t.is(await names.hostedAs(7, 'app'), 'up.test/app');
  t.is(await names.hostedAs(7, 'base'), undefined);
  const only = { includes: () => true } as never;
  t.deepEqual(await names.mirroredAmong(7, only, 5), ['up.test/app', 'up.test/base']);
  t.deepEqual(asked, [[7, 5, '', only, 0]]);
});

const bundle = 'application/vnd.dev.sigstore.bundle.v0.3+json';

const attached: [type: string, predicate: unknown, kind: string | undefined][] = [
  ['application/vnd.dev.cosign.simplesigning.v1+json', undefined, 'signature'],
  ['application/vnd.dev.cosign.artifact.sig.v1+json', undefined, 'signature'],
  ['application/vnd.cncf.notary.signature', undefined, 'signature'],
  ['text/x-application/vnd.cncf.notary.signature', undefined, undefined],
  ['application/spdx+json', undefined, 'sbom'],
  ['application/vnd.cyclonedx+json', undefined, 'sbom'],
  ['application/vnd.dev.cosign.artifact.sbom.v1+json', undefined, 'sbom'],
  ['application/vnd.in-toto+json', undefined, 'attestation'],
  ['application/vnd.dsse.envelope.v1+json', undefined, 'attestation'],
  ['application/vnd.dev.cosign.artifact.att.v1+json', undefined, 'attestation'],
  ['text/plain', undefined, undefined],
  ['text/plain', 'https://spdx.dev/Document', undefined],
  ['application/spdx+json', 'https://sigstore.dev/cosign/sign/v1', 'sbom'],
  [bundle, undefined, 'signature'],
  [bundle, 7, 'signature'],
  [bundle, 'https://sigstore.dev/cosign/sign/v1', 'signature'],
  [bundle, 'https://spdx.dev/Document', 'sbom'],
  [bundle, 'https://cyclonedx.org/bom', 'sbom'],
  [bundle, 'https://slsa.dev/provenance/v1', 'attestation'],
  [bundle, 'see https://sigstore.dev/cosign/sign/v1', 'attestation'],
];

for (const [type, predicate, kind] of attached) {
  test(`an artifact of type ${type} about ${String(predicate)} is: ${kind}`, (t) => {
    t.is(attachedKind(type, predicate), kind as ReturnType<typeof attachedKind>);
  });
}

test('the tags of what is attached to a digest', (t) => {
  const tag = `sha256-${'a'.repeat(64)}`;
  t.deepEqual(cosignTags(digest), [
    [`${tag}.sig`, 'signature'],
    [`${tag}.sbom`, 'sbom'],
    [`${tag}.att`, 'attestation'],
  ]);
});
