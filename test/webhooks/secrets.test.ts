import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { sendJson } from '../identity/support.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { rowsOf, tokenOf } from '../support/inside.ts';
import { allowLoopback, api, ask, createWebhook, startReceiver, testOf, verify } from '../support/receiver.ts';
import { TestFeed } from '../support/feed.ts';
import { until } from '../support/until.ts';
import { openRequirements } from '../../src/server/preflight.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: the key is made with the first webhook, and a start without it disables the webhooks`, async (t) => {
    const data = await folderUntilEnd(t);
    const settings = { data, database: { url: await temporaryDatabase(t, dialect) }, ...allowLoopback };
    const file = join(data, 'secret-key');
    const server = await startTestServer(t, settings);
    await t.throwsAsync(stat(file), { code: 'ENOENT' });
    const receiver = await startReceiver(t);
    const { id, secret } = await createWebhook(server, receiver.url);
    t.is((await stat(file)).mode & 0o777, 0o600);
    const key = await readFile(file, 'utf8');
    t.is(Buffer.from(key, 'base64').length, 32);
    t.false(JSON.stringify(await rowsOf(server, 'SELECT * FROM webhook_key')).includes(key.trim()));
    await server.close();

    const wrong = join(await folderUntilEnd(t), 'key');
    const start = (secretKeyFile?: string) =>
      startTestServer(t, { ...settings, ...(secretKeyFile !== undefined && { secretKeyFile }) });
    const environment: Record<string, string> = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: settings.database.url,
      ENTREPOT_UPSTREAMS: '[]',
      ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]',
    };
    /** A start without the right key serves, and says what is wrong. */
    const degraded = async (reason: RegExp, secretKeyFile?: string) => {
      const without = await start(secretKeyFile);
      t.like(await (await without.fetch('/readyz')).json(), { status: 'degraded', degraded: [{ part: 'webhooks' }] });
      t.true(
        without.lines.some(
          (line) =>
            /all webhooks are disabled, and events of this time will not be delivered/.test(line) && reason.test(line),
        ),
      );
      const item = (await api(without, 'GET', `/${id}`)) as { enabled: boolean; disabled_reason: string };
      t.false(item.enabled);
      t.regex(item.disabled_reason, /cannot be decrypted.*put the key back \(".* doctor" says what to do/);
      const requests: [method: string, path: string, body?: object][] = [
        ['POST', '', { url: receiver.url, events: ['*'] }],
        ['PATCH', `/${id}`, { rotate_secret: true }],
        ['PATCH', `/${id}`, { enabled: true }],
        ['POST', `/${id}/test`],
      ];
      for (const request of requests) {
        const response = await ask(without, ...request);
        const { code, detail } = (await response.json()) as { code: string; detail: string };
        t.deepEqual([response.status, code], [503, 'KeyUnavailable'], JSON.stringify(request));
        t.regex(detail, /has to put it back.*delete all webhooks of all accounts/);
        t.false(detail.includes(data), 'it names no file');
      }
      t.like(await api(without, 'GET', `/${id}`), { enabled: false, disabled_reason: item.disabled_reason });
      await new TestFeed(without).publish({ id: `While${without.url.split(':').at(-1)}` });
      const doctor = await entrepot(
        { ...environment, ...(secretKeyFile !== undefined && { ENTREPOT_SECRET_KEY_FILE: secretKeyFile }) },
        'doctor',
      );
      t.regex(doctor.stdout, /^FAIL {2}webhooks: ENTREPOT_SECRET_KEY_FILE: /m);
      return without;
    };
    await (await degraded(/cannot read the key/, wrong)).close();
    await writeFile(wrong, 'short');
    await (await degraded(/needs at least 32 characters/, wrong)).close();
    await writeFile(wrong, 'x'.repeat(32));
    await (await degraded(/is not the one that encrypts/, wrong)).close();
    await rm(file);
    const waiting = await degraded(/cannot read the key/);
    await writeFile(file, key);
    for (const { run, failure } of waiting.installation.webhooks.chores) if (/key/.test(failure)) await run();
    t.like(await api(waiting, 'GET', `/${id}`), { enabled: true, disabled_reason: null });
    const [disabled, enabled, ...more] = await auditOf(waiting, 'type=webhook.updated');
    t.like(disabled, { subject: { name: id }, actor: { kind: 'system' }, details: { enabled: false } });
    t.regex(String(disabled!.details['reason']), /cannot be decrypted/);
    t.like(enabled, { subject: { name: id }, actor: { kind: 'system' }, details: { enabled: true } });
    t.deepEqual([enabled!.details['changed'], more], [['enabled'], []]);
    t.true(waiting.lines.some((line) => /enabled again.*of the time between are not delivered/.test(line)));
    await testOf(waiting, id);
    await waiting.close();
    await rm(file);
    await (await degraded(/cannot read the key/)).close();
    await writeFile(file, key);
    const again = await start();
    t.like(await api(again, 'GET', `/${id}`), { enabled: true, disabled_reason: null });
    await testOf(again, id);
    t.notThrows(() => verify(receiver.received[0]!, secret));
    // A webhook that a user has disabled stays disabled.
    await api(again, 'PATCH', `/${id}`, { enabled: false });
    await again.close();
    await rm(file);
    await (await start()).close();
    await writeFile(file, key);
    const last = await start();
    t.like(await api(last, 'GET', `/${id}`), { enabled: false, disabled_reason: null });
    await last.close();

    // Without the key the webhooks can be deleted, and then another key is used.
    await rm(file);
    t.deepEqual(await entrepot(environment, 'webhook', 'delete', id), { code: 0, stdout: '', stderr: '' });
    const fresh = await start();
    const made = await createWebhook(fresh, receiver.url);
    t.not(await readFile(file, 'utf8'), key);
    t.like(await (await fresh.fetch('/readyz')).json(), { status: 'ready' });
    await testOf(fresh, made.id);
    t.notThrows(() => verify(receiver.received.at(-1)!, made.secret));
  });
}

for (const dialect of dialects) {
  test(`${dialect}: the key is forgotten when no webhook and no account with bills needs it, and not before`, async (t) => {
    const data = await folderUntilEnd(t);
    const settings = { data, database: { url: await temporaryDatabase(t, dialect) }, ...allowLoopback };
    const file = join(data, 'secret-key');
    const server = await startTestServer(t, settings);
    const other = await tokenOf(server, ['read', 'admin'], 'other');
    const bills = async (on: TestServer, enabled: boolean, token?: string) => {
      const response = await sendJson(on, 'PUT', '/v1/account/observed-bills', { enabled }, token);
      t.is(response.status, 200);
      return ((await response.json()) as { public_key: string | null }).public_key;
    };
    const hasKey = async () => (await rowsOf(server, 'SELECT id FROM webhook_key')).length === 1;
    const before = await bills(server, true);
    await bills(server, true, other);
    const { id } = await createWebhook(server, (await startReceiver(t)).url);
    await api(server, 'DELETE', `/${id}`);
    t.true(await hasKey(), 'accounts have bills');
    const again = await createWebhook(server, (await startReceiver(t)).url);
    await bills(server, false);
    await bills(server, false, other);
    t.true(await hasKey(), 'there is a webhook');
    await bills(server, true);
    await api(server, 'DELETE', `/${again.id}`);
    await bills(server, true, other);
    await bills(server, false);
    t.true(await hasKey(), 'the other account has bills');
    await server.close();

    // The key is lost, and only bills need it.
    await rm(file);
    const without = await startTestServer(t, settings);
    t.like(await (await without.fetch('/readyz')).json(), { status: 'degraded', degraded: [{ part: 'webhooks' }] });
    const refused = await sendJson(without, 'PUT', '/v1/account/observed-bills', { enabled: true });
    const { code, detail } = (await refused.json()) as { code: string; detail: string };
    t.is(code, 'KeyUnavailable');
    t.regex(
      detail,
      /delete all webhooks of all accounts .*end the bills of materials of all accounts .*account bills off/,
    );
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: settings.database.url, ENTREPOT_UPSTREAMS: '[]' };
    t.is((await entrepot(environment, 'account', 'bills', 'off', '--account', 'other')).code, 0);
    const fresh = await startTestServer(t, settings);
    t.like(await (await fresh.fetch('/readyz')).json(), { status: 'ready' });
    t.not(await bills(fresh, true), before);
    await createWebhook(fresh, (await startReceiver(t)).url);
  });
}

test('an instance without the key leaves the webhooks of the others alone', async (t) => {
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const driver = await folderUntilEnd(t);
  const first = await startTestServer(
    t,
    { data: driver, database, ...allowLoopback },
    { instanceTimes: { beat: 100 } },
  );
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(first, receiver.url);
  for (const each of (await openRequirements(first.installation.core)).chores) await each.run();
  const { instances } = first.installation.core;
  await until(async () => (await instances.live())[0]!.secret !== null);
  const none = join(await folderUntilEnd(t), 'none');
  const second = await startTestServer(t, { data: driver, database, secretKeyFile: none, ...allowLoopback });
  t.like(await (await second.fetch('/readyz')).json(), { status: 'degraded' });
  t.like(await (await first.fetch('/readyz')).json(), { status: 'ready' });
  t.like(await api(first, 'GET', `/${id}`), { enabled: true });
});

test('a key file that a setting names and that is missing stops the start while there are no secrets', async (t) => {
  const secretKeyFile = join(await folderUntilEnd(t), 'none');
  await t.throwsAsync(startTestServer(t, { secretKeyFile }), {
    message: /^ENTREPOT_SECRET_KEY_FILE: cannot read the key /,
  });
});

test('two instances with different keys do not mix them', async (t) => {
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const driver = await folderUntilEnd(t);
  const first = await startTestServer(t, { data: driver, database, ...allowLoopback });
  const other = join(await folderUntilEnd(t), 'key');
  await writeFile(other, 'y'.repeat(40));
  const second = await startTestServer(t, { data: driver, database, secretKeyFile: other, ...allowLoopback });
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(first, receiver.url);
  t.is((await ask(second, 'POST', '', { url: receiver.url, events: ['*'] })).status, 503);
  t.true(second.lines.some((line) => line.includes('ENTREPOT_SECRET_KEY_FILE')));
  t.is(((await api(first, 'GET')) as { items: unknown[] }).items.length, 1);
  await second.installation.webhooks.tick();
  await testOf(first, id);
});

test('more webhooks than one transaction takes are disabled and enabled, those that are deleted are not', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url);
  const [row] = await rowsOf(server, 'SELECT * FROM webhooks');
  await server.installation.core.database.transaction(async (tx) => {
    for (let index = 0; index < 120; index += 1) await tx.insert('webhooks', { ...row!, id: `w${index}` });
    await tx.run('UPDATE webhooks SET deleted_at = 1 WHERE id = ?', ['w5']);
    const earlier =
      'its secret cannot be decrypted, because the key of the setting secretKeyFile is missing or another one; as an earlier version said';
    const other = { id: 'other', enabled: 0, disabled_reason: 'the receiver answers 410' };
    await tx.insert('webhooks', { ...row!, id: 'earlier', enabled: 0, disabled_reason: earlier });
    await tx.insert('webhooks', { ...row!, ...other });
  });
  const { webhooks } = server.installation.webhooks;
  t.is(await webhooks.setDecryptable(false), 120);
  t.is(await webhooks.setDecryptable(false), 0);
  t.false((await webhooks.get(row!['account_id'] as number, id)).enabled);
  t.is(await webhooks.setDecryptable(true), 121);
  t.is(await webhooks.setDecryptable(true), 0);
  t.is((await rowsOf(server, "SELECT id FROM events WHERE type = 'webhook.updated'")).length, 241);
  t.false((await webhooks.get(row!['account_id'] as number, 'other')).enabled);
});

test('an encrypted secret is bound to its webhook', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  // No event of this test is for them.
  const [one, two] = [
    await createWebhook(server, receiver.url, ['package.*']),
    await createWebhook(server, receiver.url, ['package.*']),
  ];
  const rows = await rowsOf<{ id: string; secret: string }>(server, 'SELECT id, secret FROM webhooks');
  const secretOf = (id: string) => rows.find((row) => row.id === id)!.secret;
  t.not(secretOf(one.id), secretOf(two.id));
  await server.installation.core.database.transaction((tx) =>
    tx.run('UPDATE webhooks SET secret = ? WHERE id = ?', [secretOf(one.id), two.id]),
  );
  t.is((await ask(server, 'POST', `/${two.id}/test`)).status, 503);
  await testOf(server, one.id);
  t.is(receiver.received.length, 1);
});
