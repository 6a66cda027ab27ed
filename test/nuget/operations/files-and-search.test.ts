import test from 'ava';
import { AppResponse } from '../../../src/http/request-context.ts';
import { NameSet } from '../../../src/accounts/names.ts';
import { publishOperation } from '../../../src/nuget/operations/publish-operation.ts';
import { packageSearches } from '../../../src/nuget/operations/search-sources.ts';
import { versionFileOperations } from '../../../src/nuget/operations/version-files.ts';
import { setListed } from '../../../src/nuget/hosted/publish.ts';
import { byBytes } from '../../../src/runtime/sorted.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { makeNupkg, pngPixel } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';
import { named, noted, runOf, scopes } from '../../support/operations.ts';

const account = 7;
const everyone = { names: undefined };
const anonymous = { kind: 'anonymous', reads: 'mirrored' };

/** The operations that send files of versions, hosted ones and these mirrored ones. */
async function filesOf(t: Parameters<typeof HostedPackages.open>[0], mirrored: Record<string, Buffer> = {}) {
  const hosted = await HostedPackages.open(t);
  const asked: unknown[][] = [];
  const nupkg = async (...given: unknown[]) => {
    asked.push(given);
    const bytes = mirrored[given[2] as string];
    if (!bytes) return undefined;
    await hosted.store.blobs.commit([await hosted.store.blobs.stageBytes(bytes)], () => Promise.resolve());
    return { digest: digestOf(bytes), size: bytes.length };
  };
  const run = runOf(
    versionFileOperations({
      feed: hosted.context,
      mirrored: { nupkg, isUpstreamOnly: () => Promise.resolve(true) },
    } as never),
  );
  const file = async (id: string, version: string, more: object = {}, principal: object = everyone) => {
    const { content, ...rest } = await run(id, { params: { id: 'LIB', version }, ...more }, principal);
    return { ...rest, bytes: await readAll(content as never, 2 ** 20) } as Record<string, any>;
  };
  return { hosted, asked, file };
}

const missing = (version: string) => ({ name: 'NotFound', message: `LIB ${version} does not exist in this feed.` });
const noIcon = { name: 'NotFound', message: 'This version is not here, or has no icon.' };

const sent = (version: string, content: Buffer) => ({
  type: 'application/octet-stream',
  name: `lib.${version}.nupkg`,
  download: { kind: 'package', subject: 'lib', version },
  bytes: content,
});

test('the package of a version is sent under its name, the hosted one before the stored one', async (t) => {
  const stored = await makeNupkg({ id: 'Lib', version: '2.0.0-RC' });
  const { hosted, asked, file } = await filesOf(t, { '2.0.0-rc': stored });
  const bytes = await makeNupkg({ id: 'Lib' });
  await hosted.push(bytes, { account });
  t.deepEqual(await file('getPackageFile', '1.0'), sent('1.0.0', bytes));
  t.deepEqual(asked, []);
  t.deepEqual(await file('getPackageFile', '2.0-RC'), sent('2.0.0-rc', stored));
  t.deepEqual(asked.splice(0), [[account, 'LIB', '2.0.0-rc']]);
  await t.throwsAsync(file('getPackageFile', '3.0'), missing('3.0'));
  t.deepEqual(asked.splice(0), [[account, 'LIB', '3.0.0']]);
  await t.throwsAsync(file('getPackageFile', 'x'), missing('x'));
  await t.throwsAsync(file('getPackageFile', '2.0-rc', { owner: 8 }), missing('2.0-rc'));
  t.deepEqual(asked, []);
  await t.throwsAsync(file('getPackageFile', '1.0', {}, { ...everyone, ...anonymous }), missing('1.0'));
  t.deepEqual(await file('getPackageFile', '2.0-rc', {}, { ...everyone, ...anonymous }), sent('2.0.0-rc', stored));
});

test('the icon of a version is sent with its type, and an unusable one is none', async (t) => {
  const jpeg = Buffer.concat([Buffer.from([0xff, 0xd8, 0xff]), Buffer.alloc(20)]);
  const { hosted, asked, file } = await filesOf(t, {
    '2.0.0': await makeNupkg({ id: 'Lib', version: '2.0.0', icon: jpeg }),
    '3.0.0': await makeNupkg({ id: 'Lib', version: '3.0.0' }),
    '4.0.0': await makeNupkg({ id: 'Lib', version: '4.0.0', icon: Buffer.from('<svg/>') }),
    '5.0.0': Buffer.from('no zip'),
  });
  await hosted.push({ id: 'Lib', icon: pngPixel }, { account });
  await hosted.push({ id: 'Lib', version: '1.1.0' }, { account });
  const icon = await file('getPackageIcon', '1.0');
  t.deepEqual([icon['type'], icon['bytes']], ['image/png', pngPixel]);
  t.deepEqual(asked, []);
  t.deepEqual(await file('getPackageIcon', '2.0'), { type: 'image/jpeg', bytes: jpeg });
  for (const version of ['1.1', '3.0', '4.0', '5.0', '6.0'])
    await t.throwsAsync(file('getPackageIcon', version), noIcon, version);
  asked.length = 0;
  await t.throwsAsync(file('getPackageIcon', 'x'), noIcon);
  await t.throwsAsync(file('getPackageIcon', '2.0', { owner: 8 }), noIcon);
  t.deepEqual(asked, []);
});

test('a push by a form needs the right to push some package, and counts as an upload', async (t) => {
  const refusal = new DomainError('StorageFull', 'full');
  const asked: unknown[] = [];
  const views = { of: noted(asked, 'of', { mirror: {} }) };
  const blobs = { stageHosted: () => Promise.reject(refusal) };
  const operation = publishOperation({ feed: { blobs, limits: {} }, views } as never);
  t.deepEqual(
    [operation.action, operation.cost, operation.receives?.stores, operation.status],
    ['write', 'pushes', true, 201],
  );
  const run = runOf([operation]);
  const push = async (principal: object) => {
    const response = new AppResponse({ method: 'POST', headers: {} } as never);
    const receiving = { request: { headers: {} }, response };
    const error = await t.throwsAsync(run('publishPackage', { receiving }, principal));
    return [error.name, response.context.kind, response.context.act];
  };
  t.deepEqual(await push({ ...everyone, ...scopes('write') }), ['StorageFull', 'package', 'upload']);
  t.deepEqual(asked, [['of', account]]);
  t.deepEqual(await push({ ...everyone, ...scopes('read') }), ['ScopeMissing', 'other', undefined]);
  t.deepEqual(await push({ ...named(), ...scopes('write') }), ['NameDenied', 'other', undefined]);
});

const finding = (key: string, severity: number) => ({
  key,
  vulnerabilities: [{ severity, url: '' }],
  isDeprecated: true,
});

/** The searches of packages. */
async function searchesOf(t: Parameters<typeof HostedPackages.open>[0]) {
  const hosted = await HostedPackages.open(t);
  const asked: unknown[][] = [];
  const mirrored = {
    find: (...given: unknown[]) => {
      asked.push(given);
      const summary = { id: 'Mid', upstream: 'up.test', latestVersion: '3.0.0', downloadCount: 4 };
      return Promise.resolve([{ position: 'p', summary }]);
    },
  };
  const byPackage = new Map([
    ['mid', new Map([['3.0.0', finding('mid', 1)]])],
    ['lib', new Map([['1.0.0', finding('lib', 3)]])],
  ]);
  const known = (accountId: number) => (accountId === account ? { byPackage } : { byPackage: new Map() });
  const [own, theirs] = packageSearches(hosted.context, mirrored as never, { known } as never);
  const principal = { kind: 'token', accountId: account, names: undefined, scopes: new Set(['read']) };
  const find = (text: string, limit = 10, after = '', more: object = {}) =>
    own!.find({ ...principal, ...more } as never, text, limit, after);
  return { hosted, asked, find, own: own!, theirs: theirs!, principal };
}

test('a search finds hosted packages by relevance, with their newest version and marks', async (t) => {
  const { hosted, find, own } = await searchesOf(t);
  t.deepEqual([own.kind, own.origin], ['package', 'hosted']);
  await hosted.push({ id: 'Lib', version: '1.0.0', description: 'about text' }, { account });
  await hosted.push({ id: 'Lib', version: '2.0.0-RC', description: 'about text' }, { account });
  await hosted.push({ id: 'Other', description: 'uses lib' }, { account });
  await hosted.push({ id: 'Library', description: 'x' }, { account: 8 });
  const lib = {
    position: '1',
    name: 'Lib',
    upstream: null,
    version: '1.0.0',
    description: 'about text',
    download_count: 0,
    severity: 'critical',
    deprecated: true,
  };
  const other = {
    ...lib,
    position: '2',
    name: 'Other',
    description: 'uses lib',
    severity: null,
    deprecated: false,
  };
  t.deepEqual(await find('lib'), [lib, other]);
  t.deepEqual(await find('lib', 1), [lib]);
  t.deepEqual(await find('lib', 1, '1'), [other]);
  t.deepEqual(await find('lib', 10, '2'), []);
  t.deepEqual(await find('lib', 10, '3000'), []);
  t.deepEqual(await find('lib', 10, 'x'), [lib, other]);
  const names = { of: () => new NameSet(['other']) };
  t.deepEqual(await find('lib', 10, '', { names }), [{ ...other, position: '1' }]);
  t.deepEqual(await find('lib', 10, '', anonymous), []);
  const lists = () => [{ accountId: 8, only: new NameSet(['library']), without: account }];
  const shared = await find('lib', 10, '', { shared: { lists } });
  t.deepEqual(shared.map(({ name, version }) => `${name} ${version}`).toSorted(byBytes), [
    'Lib 1.0.0',
    'Library 1.0.0',
    'Other 1.0.0',
  ]);
  await setListed(hosted.context, account, 'lib', '1.0.0', false);
  t.is((await find('lib', 1))[0]!.version, '2.0.0-RC');
});

test('a search finds mirrored packages by name, within the names of the reader', async (t) => {
  const { asked, theirs, principal } = await searchesOf(t);
  t.deepEqual([theirs.kind, theirs.origin], ['package', 'mirrored']);
  t.deepEqual(await theirs.find(principal as never, 'Mid', 5, 'after'), [
    {
      position: 'p',
      name: 'Mid',
      upstream: 'up.test',
      version: '3.0.0',
      description: null,
      download_count: 4,
      severity: 'moderate',
      deprecated: true,
    },
  ]);
  t.deepEqual([asked[0]![0], ...asked[0]!.slice(2)], [account, 5, 'after', undefined]);
  const only = new NameSet(['mid']);
  await theirs.find({ ...principal, names: { of: () => only } } as never, 'Mid', 5, '');
  t.is(asked[1]![4], only);
  t.deepEqual(await theirs.find(principal as never, ' ', 5, ''), []);
  t.is(asked.length, 2);
});
