import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { allowLoopback, api, ask, deliverUntil, startReceiver } from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

type List = { items: { name: string; failing_since: string | null }[]; next_cursor: string | null; total?: object };

for (const dialect of dialects) {
  test(`${dialect}: webhooks are filtered by text and state, sorted, and counted, as far as the token sees them`, async (t) => {
    const receiver = await startReceiver(t);
    receiver.answer = (response) => response.writeHead(500).end();
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      ...allowLoopback,
    });
    let time = Date.now();
    const admin = await tokenOf(server, ['read', 'write', 'admin']);
    const make = async (name: string, events: string[], token: string, url = `${receiver.url}/${name}`) => {
      time += 1000;
      server.clock.now = time;
      return ((await api(server, 'POST', '', { name, url, events }, token)) as { id: string }).id;
    };
    await make('0 beta', ['tag.*'], admin, `${receiver.url}/first`);
    await make('Alpha', ['package.*'], admin);
    await make('', ['tag.*'], admin, `${receiver.url}/Nameless`);
    await make('operator', ['tag.*'], server.token);
    const off = await make('alpha', ['tag.*'], admin);
    await make('theirs', ['tag.*'], await tokenOf(server, ['admin'], 'other'));
    await api(server, 'PATCH', `/${off}`, { enabled: false });
    await new TestFeed(server).publish({ id: 'One' });
    await deliverUntil(server, () => receiver.received.length > 0);
    await until(async () =>
      ((await api(server, 'GET')) as List).items.some(({ failing_since: since }) => since !== null),
    );

    /** The names of a list, which are the same in pages of each size. */
    const names = async (query: string, token = admin) => {
      const inPagesOf = async (limit: number) => {
        const found: string[] = [];
        for (let cursor = ''; ;) {
          const page = (await api(server, 'GET', `?${query}&limit=${limit}${cursor}`, undefined, token)) as List;
          found.push(...page.items.map(({ name }) => name));
          if (page.next_cursor === null) return found;
          cursor = `&cursor=${page.next_cursor}`;
        }
      };
      const [all, ...others] = await Promise.all([50, 1, 2].map(inPagesOf));
      for (const each of others) t.deepEqual(each, all, query);
      return all;
    };
    t.deepEqual(await names(''), ['0 beta', 'Alpha', '', 'alpha']);
    t.deepEqual(await names('', server.token), ['0 beta', 'Alpha', '', 'operator', 'alpha']);
    t.deepEqual(await names('sort=created'), ['alpha', '', 'Alpha', '0 beta']);
    const byName = (await names('sort=name'))!;
    t.deepEqual(
      byName.map((each) => each.toLowerCase()),
      ['0 beta', '', 'alpha', 'alpha'],
      'one without a name has the place of its host',
    );
    t.deepEqual(await names('state=enabled'), ['0 beta', '']);
    t.deepEqual(await names('state=failing'), ['Alpha']);
    t.deepEqual(await names('state=disabled&sort=name'), ['alpha']);
    t.deepEqual(await names('q=ALPHA&sort=created'), ['alpha', 'Alpha']);
    t.deepEqual(await names('q=nameLESS'), [''], 'the address is searched, too');
    t.deepEqual(await names('q=operator'), []);

    const document = await OpenDocument.of(server);
    const total = async (query: string, token: string) =>
      (await document.read('GET /webhooks', await ask(server, 'GET', `?${query}`, undefined, token)))['total'];
    t.deepEqual(await total('total=1&limit=1', admin), { count: 4 });
    t.deepEqual(await total('total=1&limit=1', server.token), { count: 5 });
    t.deepEqual(await total('total=1&limit=1&q=alpha&sort=name', admin), { count: 2 });
    t.deepEqual(await total('total=1&state=failing', admin), { count: 1 });
    t.is(await total('limit=1', admin), undefined);

    const status = async (query: string) => (await ask(server, 'GET', `?${query}`)).status;
    for (const query of ['sort=url', 'state=broken', 'total=2', `q=${'a'.repeat(101)}`, 'q=a&q=b']) {
      t.is(await status(query), 400, query);
    }
    const { next_cursor: cursor } = (await api(server, 'GET', '?sort=name&limit=1')) as List;
    t.is(await status(`sort=name&cursor=${cursor}`), 200);
    for (const other of ['', 'sort=created&'])
      t.is(await status(`${other}cursor=${cursor}`), 400, 'a cursor of another order');
  });
}
