import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { rowsOf } from '../support/inside.ts';
import { allowLoopback, api, ask, createWebhook, startReceiver, testOf, verify } from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: the key is made with the first webhook, and a start with another key is refused`, async (t) => {
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
    await t.throwsAsync(start(wrong), { message: /^ENTREPOT_SECRET_KEY_FILE: cannot read the key .*$/ });
    await writeFile(wrong, 'short');
    await t.throwsAsync(start(wrong), { message: /^ENTREPOT_SECRET_KEY_FILE: .* needs at least 32 characters.*$/ });
    await writeFile(wrong, 'x'.repeat(32));
    await t.throwsAsync(start(wrong), { message: /^ENTREPOT_SECRET_KEY_FILE: the key in .* is not the one .*$/ });
    await rm(file);
    await t.throwsAsync(start(), { message: /^ENTREPOT_SECRET_KEY_FILE: cannot read the key .*$/ });
    await writeFile(file, key);
    const again = await start();
    await testOf(again, id);
    t.notThrows(() => verify(receiver.received[0]!, secret));
    await again.close();

    // Without the key the webhooks can be deleted, and then another key is used.
    await rm(file);
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: settings.database.url,
      ENTREPOT_UPSTREAMS: '[]',
      ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]',
    };
    t.deepEqual(await entrepot(environment, 'webhook', 'delete', id), { code: 0, stdout: '', stderr: '' });
    const fresh = await start();
    const made = await createWebhook(fresh, receiver.url);
    t.not(await readFile(file, 'utf8'), key);
    await testOf(fresh, made.id);
    t.notThrows(() => verify(receiver.received.at(-1)!, made.secret));
  });
}

test('two instances with different keys do not mix them', async (t) => {
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const driver = await folderUntilEnd(t);
  const first = await startTestServer(t, { data: driver, database, ...allowLoopback });
  const other = join(await folderUntilEnd(t), 'key');
  await writeFile(other, 'y'.repeat(40));
  const second = await startTestServer(t, { data: driver, database, secretKeyFile: other, ...allowLoopback });
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(first, receiver.url);
  t.is((await ask(second, 'POST', '', { url: receiver.url, events: ['*'] })).status, 500);
  t.true(second.lines.some((line) => line.includes('ENTREPOT_SECRET_KEY_FILE')));
  t.is(((await api(first, 'GET')) as { items: unknown[] }).items.length, 1);
  await second.installation.webhooks.tick();
  await testOf(first, id);
});

test('an encrypted secret is bound to its webhook', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const [one, two] = [await createWebhook(server, receiver.url), await createWebhook(server, receiver.url)];
  const rows = await rowsOf<{ id: string; secret: string }>(server, 'SELECT id, secret FROM webhooks');
  const secretOf = (id: string) => rows.find((row) => row.id === id)!.secret;
  t.not(secretOf(one.id), secretOf(two.id));
  await server.installation.core.database.transaction((tx) =>
    tx.run('UPDATE webhooks SET secret = ? WHERE id = ?', [secretOf(one.id), two.id]),
  );
  t.is((await ask(server, 'POST', `/${two.id}/test`)).status, 500);
  await testOf(server, one.id);
  t.is(receiver.received.length, 1);
});
