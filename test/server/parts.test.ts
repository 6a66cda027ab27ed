import test from 'ava';
import { ConfigError } from '../../src/config/load.ts';
import { adminHostAdvice, adminHostOf } from '../../src/server/admin-host.ts';
import { operatorsOnly } from '../../src/server/authenticator.ts';
import { checksOf } from '../../src/server/checks.ts';
import { nameAddress } from '../../src/server/listener-keys.ts';

const advice = (server: object) => adminHostAdvice(server as never);

test('an admin port that others may reach is told, unless its address was set', (t) => {
  for (const server of [
    { host: '0.0.0.0' },
    { adminPort: 1, adminHost: '0.0.0.0', host: '0.0.0.0' },
    { adminPort: 1, host: '127.0.0.1' },
    { adminPort: 1, host: '10.1.2.3' },
    { adminPort: 1, host: '::1' },
    { adminPort: 1, host: 'hub.test' },
  ])
    t.is(advice(server), undefined, JSON.stringify(server));
  for (const host of ['0.0.0.0', '::', '203.0.113.7'])
    t.is(
      advice({ adminPort: 1, host }),
      `the admin port listens on ${host}, where it shows the metrics of all accounts without a token; set ENTREPOT_ADMIN_HOST to a private address, or to ${host} if only a private network reaches the port`,
    );
  t.is(adminHostOf({ host: 'a', adminHost: 'b' } as never), 'b');
  t.is(adminHostOf({ host: 'a' } as never), 'a');
});

test('an address that cannot be used names its setting, or that of its port', (t) => {
  const keys = { host: 'ENTREPOT_HOST', port: 'ENTREPOT_PORT' };
  for (const [code, setting] of [
    ['EADDRINUSE', 'ENTREPOT_PORT'],
    ['EACCES', 'ENTREPOT_PORT'],
    ['EADDRNOTAVAIL', 'ENTREPOT_HOST'],
    ['ENOTFOUND', 'ENTREPOT_HOST'],
  ] as const) {
    const error = Object.assign(new Error(`listen ${code}`), { code });
    t.throws(() => nameAddress(keys)(error), {
      instanceOf: ConfigError,
      message: new RegExp(`^${setting}: cannot listen: .*${code}`),
    });
  }
});

test('the metrics of accounts are for tokens with operate', async (t) => {
  const asked: unknown[] = [];
  const sees = (scopes: string[], authorization?: string) => {
    const authenticator = {
      principalOf: (request: unknown) => {
        asked.push(request);
        return Promise.resolve({ scopes: new Set(scopes) });
      },
    };
    return operatorsOnly(authenticator as never)({ headers: { authorization } } as never);
  };
  t.false(await sees(['operate']));
  t.deepEqual(asked, [], 'without a credential nothing is asked');
  t.true(await sees(['read', 'operate'], 'Bearer x'));
  t.false(await sees(['read', 'admin'], 'Bearer x'));
});

test('readiness checks each part by its own work', async (t) => {
  const called: string[] = [];
  const call = (name: string) => () => Promise.resolve(void called.push(name));
  const { reads, writes } = checksOf({
    database: { checkReads: call('database reads'), checkWrites: call('database writes') },
    blobs: { checkReads: call('blobs reads'), checkStaging: call('staging'), checkWrites: call('blobs writes') },
    driver: { checkEvery: 7 },
    room: { check: call('room') },
    cache: { check: call('cache') },
  } as never);
  for (const { run } of [...reads, ...writes]) await run();
  t.deepEqual(called, ['database reads', 'blobs reads', 'staging', 'database writes', 'blobs writes', 'room', 'cache']);
  t.deepEqual(
    [...reads, ...writes].map(({ part, failure, every }) => [part, failure, every]),
    [
      ['database', 'The database cannot be read.', undefined],
      ['storage', 'The storage cannot be read.', 7],
      ['storage', 'The storage cannot be written.', undefined],
      ['database', 'The database cannot be written.', undefined],
      ['storage', 'The storage cannot be written.', undefined],
      ['storage', 'The disk has less free space than storage.reserve: uploads are refused.', undefined],
      ['redis', 'Redis does not answer.', undefined],
    ],
  );
});
