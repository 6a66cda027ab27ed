import test from 'ava';
import { allowLoopback, createWebhook } from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// Pages are compressed for who opens them from the console or by their address.

const path = '/console/tokens';

test('a page is compressed for a client that accepts gzip, and is the same', async (t) => {
  const visitor = await Visitor.signedIn(await startTestServer(t));
  const open = async (codings: string, site = 'same-origin') => {
    const response = await visitor.fetch(path, { headers: { 'accept-encoding': codings, 'sec-fetch-site': site } });
    const text = await response.text();
    return { coding: response.headers.get('content-encoding'), size: response.headers.get('content-length'), text };
  };
  const plain = await open('identity');
  t.is(plain.coding, null);
  t.notRegex(plain.text, /<main[^>]* data-answer/);
  for (const codings of ['gzip', 'br, GZIP', 'br;q=1.0, gzip;q=0.8, *;q=0.1', 'gzip ; q=0.001']) {
    const { coding, size, text } = await open(codings);
    t.is(coding, 'gzip', codings);
    t.true(Number(size) < Number(plain.size) / 2, codings);
    t.is(withoutTimes(text), withoutTimes(plain.text), codings);
  }
  t.is((await open('gzip', 'none')).coding, 'gzip', 'by its address');
  for (const codings of ['', 'br', 'x-gzip', 'gzip;q=0', 'gzip; q=0.000', 'deflate, gzip;q=0, br'])
    t.is((await open(codings)).coding, null, codings);
});

test('a page that another site lets the browser open, and an answer to a form, are not compressed', async (t) => {
  const visitor = await Visitor.signedIn(await startTestServer(t));
  const codings = { 'accept-encoding': 'gzip' };
  for (const site of ['cross-site', 'same-site', '', undefined]) {
    const headers = { ...codings, ...(site !== undefined && { 'sec-fetch-site': site }) };
    const response = await visitor.fetch(`${path}?name=guess`, { headers });
    t.is(response.status, 200);
    t.is(response.headers.get('content-encoding'), null, site);
  }
  const made = await visitor.send('/console/tokens/new', { name: 'x', scope: 'read' }, codings);
  t.is(made.status, 201);
  const answer = await made.text();
  t.regex(answer, /ent_\w{36}/);
  t.regex(answer, /<main[^>]* data-answer/);
  t.is(made.headers.get('content-encoding'), null);
});

test('a page that can show a secret, such as the address of a webhook, is never compressed', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const { id } = await createWebhook(server, 'http://127.0.0.1:9/hook?key=hunter2', ['*']);
  const visitor = await Visitor.signedIn(server);
  for (const address of ['', '/new', `/${id}`, `/${id}/secret`, `/${id}/delete`]) {
    const response = await visitor.fetch(`/console/webhooks${address}`, {
      headers: { 'accept-encoding': 'gzip', 'sec-fetch-site': 'same-origin' },
    });
    t.is(response.status, 200);
    t.is(response.headers.get('content-encoding'), null, address);
  }
});

function withoutTimes(text: string): string {
  return text.replaceAll(/<time[^]*?<\/time\s*>/g, '');
}
