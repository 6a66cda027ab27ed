import test from 'ava';
import { Addresses } from '../../../src/nuget/feed/addresses.ts';
import { searchResult } from '../../../src/nuget/feed/search-result.ts';
import type { SearchHit } from '../../../src/nuget/format/search-hit.ts';

const addresses = new Addresses('https://here.test');
const hit: SearchHit = {
  version: '1.0.0',
  fullVersion: '1.0.0+build',
  hasIcon: false,
  metadata: { id: 'Lib', packageTypes: [{ name: 'DotnetTool', version: '1.0' }] },
  totalDownloads: 7,
  versions: [{ version: '1.0.0-RC', fullVersion: '1.0.0-RC+a', downloads: 3 }],
};

test('a hit has empty texts and lists where its package says nothing, and its id as title', (t) => {
  const registration = 'https://here.test/v3/registration/lib/index.json';
  t.deepEqual(searchResult(addresses, 'registration', hit), {
    '@id': registration,
    '@type': 'Package',
    registration,
    id: 'Lib',
    version: '1.0.0+build',
    description: '',
    summary: '',
    title: 'Lib',
    iconUrl: undefined,
    licenseUrl: undefined,
    projectUrl: undefined,
    tags: [],
    authors: [],
    owners: [],
    totalDownloads: 7,
    verified: false,
    deprecation: undefined,
    packageTypes: [{ name: 'DotnetTool' }],
    versions: [
      {
        version: '1.0.0-RC+a',
        downloads: 3,
        '@id': 'https://here.test/v3/registration/lib/1.0.0-rc.json',
      },
    ],
  });
});

test('a hit has what its package says, and names without the spaces around them', (t) => {
  const told = {
    description: 'what it does',
    summary: 'in short',
    title: 'The Lib',
    licenseUrl: 'https://a.test/license',
    projectUrl: 'https://a.test/project',
    tags: ['one', 'two'],
  };
  const metadata = { ...hit.metadata, ...told, authors: ' Ada , , Bob', owners: 'Eve' };
  const found = searchResult(addresses, 'registration-gz-semver2', { ...hit, metadata, hasIcon: true });
  t.like(found, { ...told, authors: ['Ada', 'Bob'], owners: ['Eve'] });
  t.is(found['iconUrl'], addresses.file('Lib', '1.0.0', 'icon'));
});
