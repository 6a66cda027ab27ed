import test from 'ava';
import { eventTypes } from '../../src/events/event.ts';
import type { DeliveryItem } from '../../src/webhooks/delivery.ts';
import type { WebhookItem } from '../../src/webhooks/webhook.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { allowLoopback, api, deliverUntil, startReceiver, verify } from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: webhooks by command, beside a server`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { data, database: { url }, ...allowLoopback });
    const receiver = await startReceiver(t);
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_UPSTREAMS: '[]',
      ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]',
    };
    const command = (...words: string[]) => entrepot(environment, 'webhook', ...words);
    const shown = async <T>(...words: string[]): Promise<T[]> => {
      const { code, stdout, stderr } = await command(...words);
      t.deepEqual([code, stderr], [0, '']);
      const lines = stdout.split('\n').filter(Boolean);
      return lines.map((line) => JSON.parse(line) as T);
    };
    const [made] = await shown<WebhookItem & { secret: string }>(
      'create',
      '--name',
      ' chat ',
      '--url',
      receiver.url,
      '--events',
      'package.*',
    );
    const { secret, ...item } = made!;
    t.like(item, { name: 'chat', operate: false });
    t.deepEqual(await shown<WebhookItem>('list'), [item]);
    t.deepEqual(await api(server, 'GET', `/${item.id}`), item, 'as in /v1/webhooks');
    const tested = await command('test', item.id);
    t.is(tested.code, 0);
    t.is((JSON.parse(tested.stdout) as { status: number }).status, 204);
    const note = `note: this command sends the test, with its own settings (webhooks.allow: ["127.0.0.1"]) and network. To let the running server send it, use "Send a test" in the console, or POST /v1/webhooks/${item.id}/test\n`;
    t.is(tested.stderr, note);
    t.notThrows(() => verify(receiver.received[0]!, secret));

    await new TestFeed(server).publish({ id: 'One' });
    const delivered = async () =>
      (await shown<DeliveryItem>('deliveries', item.id)).filter(({ state }) => state === 'delivered');
    await deliverUntil(server, async () => (await delivered()).length === 1);
    const [delivery] = await delivered();
    t.deepEqual((await api(server, 'GET', `/${item.id}/deliveries`)) as object, {
      items: [delivery],
      next_cursor: null,
    });
    t.like((await shown<DeliveryItem>('redeliver', item.id, delivery!.id))[0], { state: 'pending' });
    await deliverUntil(server, () => receiver.received.length === 3);
    await deliverUntil(server, async () => (await delivered()).length === 1);
    t.deepEqual(await shown('redeliver', item.id, '--since', '1d'), [{ deliveries: 1 }]);
    await deliverUntil(server, () => receiver.received.length === 4);
    t.deepEqual(await shown('redeliver', item.id, '--since', new Date(Date.now() + 60_000).toISOString()), [
      { deliveries: 0 },
    ]);

    const [rotated] = await shown<{ secret: string }>('change', item.id, '--rotate-secret', '--events', '*, tag.* ');
    t.regex(rotated!.secret, /^whsec_/);
    t.deepEqual(await shown('change', item.id, '--disable'), [{ ...item, events: ['*', 'tag.*'], enabled: false }]);
    const renamed = { ...item, events: ['*', 'tag.*'], name: 'build' };
    t.deepEqual(await shown('change', item.id, '--enable', '--name', 'build'), [renamed]);
    const limited = { ...renamed, patterns: { packages: ['Contoso.*'] } };
    t.deepEqual(await shown('change', item.id, '--packages', 'Contoso.*'), [limited]);
    t.deepEqual(await shown('change', item.id, '--all-names'), [renamed]);
    t.regex((await command('change', item.id, '--name', 'x'.repeat(101))).stderr, /Invalid name of the webhook/);
    receiver.answer = (response) => response.writeHead(302).end();
    const failed = await command('test', item.id);
    t.is(failed.code, 1);
    t.is(failed.stderr, `${note}entrepot: The test failed: answered 302; redirects are not followed\n`);
    const refused = await entrepot({ ...environment, ENTREPOT_WEBHOOKS_ALLOW: '[]' }, 'webhook', 'test', item.id);
    t.is(refused.code, 1, 'the settings of the server are others');
    t.regex(refused.stderr, /^note: .*\(webhooks\.allow: \[\]\).*\nentrepot: The test failed: .* not allowed; .*\n$/);
    for (const [words, message] of [
      [['create', '--url', 'nothing'], /url: expected an http or https URL/],
      [['create', '--url', 'http://10.0.0.1'], /webhooks\.allow/],
      [['create', '--url', receiver.url, '--events', 'package'], /there is no type "package"/],
      [
        ['create', '--url', receiver.url, '--events', eventTypes.slice(0, 21).join(',')],
        /expected 1 to 20 types of events/,
      ],
      [['change', item.id, '--enable', '--disable'], /only one of --enable and --disable/],
      [['deliveries', item.id, '--limit', '0'], /number from 1 to 10000/],
      [['redeliver', item.id], /the ID of a delivery, or --since/],
      [['delete', 'none'], /no webhook with this ID/],
      [['list', '--account', 'none'], /There is no account "none"/],
    ] as const) {
      const { code, stderr } = await command(...words);
      t.is(code, 1, words.join(' '));
      t.regex(stderr, message);
    }
    t.deepEqual(await shown('delete', item.id), []);
    t.deepEqual(await shown('list'), []);
    t.true((await shown<WebhookItem>('create', '--url', receiver.url, '--operate'))[0]!.operate);
  });
}

test('every command of webhooks has --help', async (t) => {
  for (const name of ['create', 'list', 'change', 'delete', 'test', 'deliveries', 'redeliver']) {
    const { code, stdout } = await entrepot({}, 'webhook', name, '--help');
    t.is(code, 0);
    t.regex(stdout, new RegExp(`^Usage: entrepot webhook ${name} `));
  }
});
