import test, { type ExecutionContext } from 'ava';
import { importBundle, type ImportParts } from '../../src/bundle/import.ts';
import { openBundle } from '../../src/bundle/read.ts';
import { TrustedKeys } from '../../src/bundle/trust.ts';
import { withInstallation } from '../../src/cli/with-installation.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { rowsOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';

// Imports that run at the same time, by two commands or by a command and a server.

/** Calls `work` when all content is stored, before it is shown. */
const beforeShown = (work: () => Promise<unknown>) => (parts: ImportParts) => ({
  entries: Object.create(parts.entries, {
    mark: {
      value: async () => {
        await work();
        return parts.entries.mark();
      },
    },
  }) as ImportParts['entries'],
});
/** Calls `work` after the import has looked for an earlier one. */
const afterLook = (work: () => Promise<unknown>) => (parts: ImportParts) => ({
  accounts: {
    named: async (account: string) => {
      await work();
      return parts.accounts.named(account);
    },
  },
});

/** Two bundles of an account's image, whose tag has moved between them. */
async function moved(t: ExecutionContext) {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const repository = new TestRepository(source, 'team/app');
  const make = (name: string) => near.ok('bundle', 'create', '--hosted', 'default', '--to', path(name), '--key', key);
  await repository.image('1.0');
  await make('old');
  const latest = await repository.image('1.0');
  await make('new');
  await source.close();
  const environment = { ENTREPOT_DATA: far.data, ENTREPOT_UPSTREAMS: JSON.stringify(far.upstreams) };
  /** Imports a bundle; `change` replaces what the import uses. */
  const importWith = (name: string, change: (parts: ImportParts) => Partial<ImportParts>) =>
    withInstallation(environment, async ({ core, protocols, describe }) => {
      await using opened = await openBundle([path(name)]);
      const parts = { ...core, protocols, describe, trust: new TrustedKeys(core.database, core.now) };
      const options = { unsigned: false, older: false, hosted: true, watch: () => undefined };
      const { signal } = new AbortController();
      await importBundle({ ...parts, ...change(parts) }, opened, { ...options, signal });
    });
  return { far, path, latest, importWith };
}

test('an import that a newer bundle of its source overtakes shows nothing', async (t) => {
  const { far, path, latest, importWith } = await moved(t);
  const overtaken = beforeShown(() => far.ok('bundle', 'import', path('new')));
  await t.throwsAsync(importWith('old', overtaken), { message: /is older than the last one of its source.*--older/ });
  const server = await far.serve();
  const tag = async () => (await server.fetch('/v2/team/app/manifests/1.0')).headers.get('docker-content-digest');
  t.is(await tag(), latest.digest);
  await far.ok('bundle', 'import', path('old'), '--older');
  t.is(await tag(), latest.digest);
  t.deepEqual(await rowsOf(server, 'SELECT digest FROM mirror_staged'), []);
});

test('of two imports of one bundle, the one that fails takes nothing of the other back, and holds nothing', async (t) => {
  const { far, path, importWith } = await moved(t);
  const stopped = new Error('stopped');
  const other = () => far.ok('bundle', 'import', path('old'));
  await t.throwsAsync(
    importWith('old', (parts) => ({
      ...afterLook(other)(parts),
      ...beforeShown(() => Promise.reject(stopped))(parts),
    })),
    { is: stopped },
  );
  const late = beforeShown(async () => {
    await far.ok('bundle', 'import', path('new'));
    throw stopped;
  });
  await t.throwsAsync(importWith('new', late), { is: stopped });
  const server = await far.serve();
  t.deepEqual(await rowsOf(server, 'SELECT state FROM bundles'), [{ state: 'complete' }, { state: 'complete' }]);
  t.deepEqual(await rowsOf(server, 'SELECT digest FROM mirror_staged'), []);
});

test('an import whose key is removed meanwhile shows nothing', async (t) => {
  const { far, importWith } = await moved(t);
  const removed = afterLook(() => far.ok('bundle', 'trust', 'remove', 'near.key'));
  await t.throwsAsync(importWith('old', removed), { name: 'Denied', message: /which is not trusted here/ });
  const server = await far.serve();
  t.deepEqual(await rowsOf(server, 'SELECT state FROM bundles'), [{ state: 'incomplete' }]);
  t.is((await server.fetch('/v2/team/app/manifests/1.0')).status, 502);
});
