import test from 'ava';
import {
  alternatives,
  byPlural,
  capital,
  kindOfWord,
  nameKinds,
  protocolWords,
  upstreamKindAt,
  upstreamKinds,
} from '../../src/config/protocols.ts';
import { schema } from '../../src/config/schema.ts';
import { registriesOf } from '../../src/config/upstreams.ts';

const kindAt = (url: string) => upstreamKindAt(new URL(url));

test('each protocol has its words', (t) => {
  t.deepEqual(nameKinds, ['package', 'container']);
  t.deepEqual(upstreamKinds, ['nuget', 'registry']);
  t.deepEqual(
    byPlural(({ names, example }) => `${names}: ${example}`),
    {
      packages: 'package IDs: Contoso.*,Fabrikam',
      containers: 'image repositories: team/*',
    },
  );
  t.deepEqual(
    protocolWords.map(({ word, hasSlashes, server, nexusFormat }) => [word, hasSlashes, server, nexusFormat]),
    [
      ['package', false, 'feed', 'nuget'],
      ['image', true, 'registry', 'docker'],
    ],
  );
  t.deepEqual(['package', 'image', 'container', 'x'].map(kindOfWord), ['package', 'container', undefined, undefined]);
  t.deepEqual(['https://a.test', 'https://a.test/', 'https://a.test/v3/index.json', 'https://a.test/x/'].map(kindAt), [
    'registry',
    'registry',
    'nuget',
    'nuget',
  ]);
});

test('a list of words is a part of a sentence', (t) => {
  t.deepEqual([[], ['a'], ['a', 'b'], ['a', 'b', 'c']].map(alternatives), ['', 'a', 'a or b', 'a, b or c']);
  t.deepEqual(['package IDs', 'A', ''].map(capital), ['Package IDs', 'A', '']);
});

test('the registries of an account are those for all accounts, and those for it', (t) => {
  const { upstreams } = schema.parse({
    upstreams: [
      { name: 'nuget.org', kind: 'nuget' },
      { name: 'ghcr.io', kind: 'registry' },
      { name: 'quay.io', kind: 'registry', accounts: ['team', 'other'] },
    ],
  });
  t.deepEqual(registriesOf(upstreams, 'team'), ['ghcr.io', 'quay.io']);
  t.deepEqual(registriesOf(upstreams, 'default'), ['ghcr.io']);
});
