import test from 'ava';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import { RepositoryNames } from '../../../src/oci/mirrored/repository-names.ts';
import {
  firstSegment,
  formsOf,
  isRegistry,
  listedForms,
  namesAtUpstream,
  pullScope,
  resource,
  spellingsOf,
  upstreamNamed,
  urlOf,
} from '../../../src/oci/mirrored/upstream-repository.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

// Where repositories are, by their names alone.

interface Settings {
  include?: string[];
  exclude?: string[];
  accounts?: string[];
  default?: boolean;
}

function upstream(name: string, { accounts, ...settings }: Settings = {}) {
  const config = { include: ['*'], exclude: [], default: false, ...settings };
  const serves = () => accounts === undefined;
  return {
    id: name.replace('.', '-'),
    name,
    config,
    serves,
    base: new URL(`https://${name}/x`),
  } as unknown as Upstream;
}

const hub = upstream('docker.io', { default: true });
const second = upstream('second.test', { exclude: ['second.test/secret/*', 'plain-secret/*'] });
const team = upstream('team.test', { accounts: ['team'] });
const all = [hub, second, team];
const names = new RepositoryNames(new UpstreamPolicy(all, undefined, ['corp/*']));
/** Without a default upstream, and with one that is not Docker Hub. */
const without = new RepositoryNames(new UpstreamPolicy([second], undefined, []));
const other = upstream('other.test', { default: true });
const withOther = new RepositoryNames(new UpstreamPolicy([second, other], undefined, []));

const located = (of: RepositoryNames, name: string, ns?: string) => {
  const { place, meant, ...rest } = of.locate(name, ns);
  const textOf = (each: typeof place) => each && `${each.upstream.name} ${each.name}`;
  return { ...rest, place: textOf(place), meant: textOf(meant) };
};

const nowhere = { place: undefined, meant: undefined, missing: undefined };
const at = (place: string) => ({ place, meant: place, missing: undefined });
const onHub = (name: string) => [`docker.io/${name}`, name];
const app = ['docker.io/library/app', 'docker.io/app', 'library/app'];

const cases: [string, RepositoryNames, string, string | undefined, object][] = [
  [
    'an official image',
    names,
    'app',
    undefined,
    { ...at('docker.io library/app'), hosted: ['app', ...app], isNamed: false },
  ],
  [
    'its long name',
    names,
    'library/app',
    undefined,
    { ...at('docker.io library/app'), hosted: ['library/app', ...app.slice(0, 2), 'app'], isNamed: false },
  ],
  [
    'its whole name',
    names,
    'docker.io/library/app',
    undefined,
    { ...at('docker.io library/app'), hosted: [...app, 'app'], isNamed: true },
  ],
  [
    'another name of Docker Hub',
    names,
    'index.docker.io/app',
    undefined,
    { ...at('docker.io library/app'), hosted: ['index.docker.io/app', ...app, 'app'], isNamed: true },
  ],
  [
    'an image of a team',
    names,
    'team/app',
    undefined,
    { ...at('docker.io team/app'), hosted: ['team/app', 'docker.io/team/app'], isNamed: false },
  ],
  [
    'an image that is asked by its registry',
    names,
    'team/app',
    'docker.io',
    { ...at('docker.io team/app'), hosted: onHub('team/app'), isNamed: true },
  ],
  [
    'an image that is asked by another name of its registry',
    names,
    'app',
    'registry-1.docker.io',
    { ...at('docker.io library/app'), hosted: [...app, 'app'], isNamed: true },
  ],
  [
    'an image that names its registry twice',
    names,
    'second.test/team/app',
    'second.test',
    { ...at('second.test team/app'), hosted: ['second.test/team/app'], isNamed: true },
  ],
  [
    'an image of another upstream',
    names,
    'second.test/app',
    undefined,
    { ...at('second.test app'), hosted: ['second.test/app'], isNamed: true },
  ],
  [
    'a name of one upstream at another',
    names,
    'second.test/team/app',
    'docker.io',
    { ...at('docker.io second.test/team/app'), hosted: onHub('second.test/team/app'), isNamed: true },
  ],
  ...['unknown.test', 'unknown', 'unknown:5000', '[::1]:5000', 'x'.repeat(255)].map((ns): (typeof cases)[number] => [
    `an unknown registry, ${ns.slice(0, 20)}`,
    names,
    'app',
    ns,
    { ...nowhere, hosted: [], isNamed: true, missing: ns.startsWith('[') ? undefined : ns },
  ]),
  ['a text that can be no registry', names, 'app', 'x'.repeat(256), { ...nowhere, hosted: [], isNamed: true }],
  [
    'an upstream of other accounts',
    names,
    'team.test/app',
    undefined,
    { ...nowhere, hosted: ['team.test/app'], isNamed: true, missing: 'team.test' },
  ],
  [
    'an upstream of other accounts by its registry',
    names,
    'app',
    'team.test',
    { ...nowhere, hosted: [], isNamed: true, missing: 'team.test' },
  ],
  [
    'a registry that is no upstream',
    names,
    'unknown.test/app',
    undefined,
    {
      place: undefined,
      meant: 'docker.io unknown.test/app',
      missing: 'unknown.test',
      hosted: ['unknown.test/app', 'docker.io/unknown.test/app'],
      isNamed: false,
    },
  ],
  [
    'a registry that is no upstream, of another default',
    withOther,
    'unknown.test/app',
    undefined,
    {
      ...at('other.test unknown.test/app'),
      hosted: ['unknown.test/app', 'other.test/unknown.test/app'],
      isNamed: false,
    },
  ],
  ['no default', without, 'team/app', undefined, { ...nowhere, hosted: ['team/app'], isNamed: false }],
  [
    'a registry that is no upstream, without a default',
    without,
    'unknown.test/app',
    undefined,
    { ...nowhere, hosted: ['unknown.test/app'], isNamed: false, missing: 'unknown.test' },
  ],
  [
    'an excluded image',
    names,
    'second.test/secret/app',
    undefined,
    {
      place: undefined,
      meant: 'second.test secret/app',
      missing: undefined,
      hosted: ['second.test/secret/app'],
      isNamed: true,
    },
  ],
  [
    'an image that is excluded by its name there',
    names,
    'second.test/plain-secret/app',
    undefined,
    {
      place: undefined,
      meant: 'second.test plain-secret/app',
      missing: undefined,
      hosted: ['second.test/plain-secret/app'],
      isNamed: true,
    },
  ],
  [
    'a reserved image',
    names,
    'corp/app',
    undefined,
    {
      place: undefined,
      meant: 'docker.io corp/app',
      missing: undefined,
      hosted: ['corp/app', 'docker.io/corp/app'],
      isNamed: false,
    },
  ],
  [
    'a reserved image behind two prefixes',
    names,
    'second.test/docker.io/corp/app',
    undefined,
    {
      place: undefined,
      meant: 'second.test docker.io/corp/app',
      missing: undefined,
      hosted: ['second.test/docker.io/corp/app'],
      isNamed: true,
    },
  ],
  [
    'a reserved image behind three prefixes',
    names,
    'second.test/docker.io/index.docker.io/corp/app',
    undefined,
    {
      place: undefined,
      meant: 'second.test docker.io/index.docker.io/corp/app',
      missing: undefined,
      hosted: ['second.test/docker.io/index.docker.io/corp/app'],
      isNamed: true,
    },
  ],
  [
    'an open image behind two prefixes',
    names,
    'second.test/docker.io/team/app',
    undefined,
    { ...at('second.test docker.io/team/app'), hosted: ['second.test/docker.io/team/app'], isNamed: true },
  ],
  [
    'the same prefix twice',
    names,
    'second.test/second.test/app',
    undefined,
    {
      place: undefined,
      meant: 'second.test second.test/app',
      missing: undefined,
      hosted: ['second.test/second.test/app'],
      isNamed: true,
    },
  ],
];

for (const [what, of, name, ns, expected] of cases) {
  test(`where the repository of a request is: ${what}`, (t) => {
    t.deepEqual(located(of, name, ns), expected as ReturnType<typeof located>);
  });
}

/** The rules of the upstreams that a name means, and how many names it may be hosted under. */
function explain(name: string) {
  const { upstreams, reservedBy, missing, hosted, meant } = names.explain(name);
  const told = upstreams.map(({ upstream: { id }, rule, pattern }) => `${id} ${rule} ${pattern}`);
  return [told, reservedBy, missing, hosted.length, meant?.name];
}

test('why an upstream is asked for an image, or not', (t) => {
  t.deepEqual(explain('app'), [['docker-io asked undefined'], undefined, undefined, 4, 'library/app']);
  t.deepEqual(explain('second.test/app'), [['second-test asked undefined'], undefined, undefined, 1, 'app']);
  t.deepEqual(explain('corp/app'), [['docker-io reserved corp/*'], 'corp/*', undefined, 2, 'corp/app']);
  t.deepEqual(explain('second.test/plain-secret/app'), [
    ['second-test excluded plain-secret/*'],
    undefined,
    undefined,
    1,
    'plain-secret/app',
  ]);
  t.deepEqual(explain('team.test/app'), [['team-test other account undefined'], undefined, 'team.test', 1, undefined]);
  t.deepEqual(explain('unknown.test/app'), [[], undefined, 'unknown.test', 2, 'unknown.test/app']);
  t.deepEqual(without.explain('team/app'), {
    reservedBy: undefined,
    upstreams: [],
    hosted: ['team/app'],
    missing: undefined,
    meant: undefined,
  });
});

const of = (registry: Upstream, name: string, some = names) => some.namesOf({ upstream: registry, name });

test('the names by which clients request an image of an upstream', (t) => {
  t.deepEqual(of(hub, 'library/app'), ['docker.io/library/app', 'docker.io/app', 'library/app', 'app']);
  t.deepEqual(of(hub, 'team/app'), ['docker.io/team/app', 'team/app']);
  t.deepEqual(of(hub, 'library/deep/app'), ['docker.io/library/deep/app', 'library/deep/app']);
  t.deepEqual(of(hub, 'second.test/app'), ['docker.io/second.test/app'], 'this would be at the other upstream');
  t.deepEqual(of(hub, 'unknown.test/app'), ['docker.io/unknown.test/app']);
  t.deepEqual(of(second, 'app'), ['second.test/app']);
  t.deepEqual(of(second, 'library/app'), ['second.test/library/app']);
  t.deepEqual(of(other, 'unknown.test/app', withOther), ['other.test/unknown.test/app', 'unknown.test/app']);
  t.deepEqual(of(other, 'second.test/app', withOther), ['other.test/second.test/app']);
});

test('what the parts of a name mean', (t) => {
  t.deepEqual(['app', 'a/app', 'a/b/app', '/app'].map(firstSegment), ['', 'a', 'a', '']);
  t.deepEqual(['a.test', 'a', 'a_b.test', 'localhost', ''].map(isRegistry), [true, false, false, false, false]);
  t.deepEqual(spellingsOf(hub), ['docker.io', 'index.docker.io', 'registry-1.docker.io']);
  t.deepEqual(spellingsOf(second), ['second.test']);
  t.deepEqual(['index.docker.io', 'registry-1.docker.io', 'docker.io', 'second.test'].map(upstreamNamed), [
    'docker.io',
    'docker.io',
    'docker.io',
    'second.test',
  ]);
  t.deepEqual(formsOf({ upstream: hub, name: 'my-library/app' }), ['my-library/app']);
  t.deepEqual(namesAtUpstream('app', 'docker.io'), ['library/app', 'app']);
  t.deepEqual(namesAtUpstream('library/app', 'docker.io'), ['library/app', 'app']);
  t.deepEqual(namesAtUpstream('team/app', 'docker.io'), ['team/app']);
  t.deepEqual(namesAtUpstream('app', 'second.test'), ['app']);
  t.deepEqual(listedForms('docker.io/app'), ['docker.io/library/app', 'docker.io/app']);
  t.deepEqual(listedForms('second.test/library/app'), ['second.test/library/app']);
  t.deepEqual(listedForms('app'), ['app']);
});

test('addresses, scopes and keys have the name that the image has at its upstream', (t) => {
  const config = { freshFor: 1, staleFor: 2, negativeFor: 3, timeout: 4, kind: 'registry' };
  const place = { upstream: { id: 'second-test', config, base: second.base } as unknown as Upstream, name: 'team/app' };
  t.is(urlOf(place, 'manifests', 'sha256:ab').href, 'https://second.test/v2/team/app/manifests/sha256:ab');
  t.is(pullScope(place), 'repository:team/app:pull');
  t.deepEqual(resource(place, 'tags', 'v1').key, {
    upstream: 'second-test',
    kind: 'tags',
    name: 'team/app',
    reference: 'v1',
  });
});
