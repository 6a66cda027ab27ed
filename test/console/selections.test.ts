import { randomUUID } from 'node:crypto';
import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { tokenOf } from '../support/inside.ts';
import { dangers, hostile } from '../support/hostile.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// The bounds of what is selected in a list; test/browser/selections.test.ts selects rows.

const addressOf = (path: string, name: string, values: readonly string[]) =>
  `${path}?${new URLSearchParams(values.map((value): [string, string] => [name, value])).toString()}`;

const hiddenIn = (page: string, name: string) =>
  [...page.matchAll(new RegExp(`<input type="hidden" name="${name}" value="([^"]*)"`, 'g'))].map(([, value]) => value!);

test('a selection has at most 200 rows and 3500 characters, keeps the first ones, and says how many are left', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Core' });
  const visitor = await Visitor.signedIn(server);
  const ids = Array.from({ length: 300 }, () => randomUUID());
  const tokens = await visitor.page(addressOf('/console/tokens', 'id', ids));
  t.deepEqual(hiddenIn(tokens, 'id'), ids.slice(0, 87), '40 characters each');
  t.regex(tokens, /213 rows are not selected: the selection is full/);
  t.regex(tokens, /<strong>87<\/strong>\s*selected, 87 of them not on this page/);
  const versions = Array.from({ length: 250 }, (_, index) => `${index}`);
  const page = await visitor.page(`${addressOf('/console/packages/Contoso.Core', 'version', versions)}&show=versions`);
  t.deepEqual(hiddenIn(page, 'version'), versions.slice(0, 200));
  t.regex(page, /50 rows are not selected/);
  const twice = await visitor.page(addressOf('/console/tokens', 'id', [ids[0]!, ids[0]!, ids[1]!]));
  t.deepEqual(hiddenIn(twice, 'id'), ids.slice(0, 2));
  t.notRegex(twice, /not selected/);
  t.regex(twice, /<a href="\/console\/tokens">Clear the selection/);
});

test('heads of columns are buttons of the form with the boxes, and lead to the first page in their order', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish(
    { id: 'Contoso.Core', version: '1.0.0' },
    { id: 'Contoso.Core', version: '2.0.0' },
  );
  const visitor = await Visitor.signedIn(server);
  const path = '/console/packages/Contoso.Core?show=versions&sort=size&version=9.9.9';
  const form = /<form method="get"[^]*?<\/form>/.exec(await visitor.page(path))![0];
  t.regex(form, /<th[^>]*>\s*<button name="sort" value="downloads">Downloads<\/button>/);
  t.regex(form, /<th[^>]*aria-sort="descending"[^>]*>\s*<button name="sort" value="size">/);
  t.notRegex(form, /<th[^>]*>\s*<a /);
  t.regex(
    form,
    /<button name="sort" value="">Version<[^]*type="hidden" name="show" value="versions"[^]*type="hidden" name="sort" value="size"/,
  );
  t.notRegex(form, /name="cursor"/);
  // A browser sends the head first, because it comes first.
  const sorted = await visitor.page(
    '/console/packages/Contoso.Core?q=&version=1.0.0&version=9.9.9&sort=&show=versions&sort=size',
  );
  t.regex(sorted, /value="1\.0\.0"[^>]*checked/);
  t.deepEqual(hiddenIn(sorted, 'version'), ['9.9.9']);
  t.regex(sorted, /aria-sort="descending"[^>]*>\s*<button name="sort" value="oldest">Version/);

  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.regex(
    await reader.page('/console/packages/Contoso.Core?show=versions'),
    /<th[^>]*>\s*<a href="[^"]*sort=downloads">Downloads/,
  );
});

test('a confirmation with more than it changes at once says so, and its form sends only what it shows', async (t) => {
  const server = await startTestServer(t);
  await new TestRepository(server, 'team/app').image('v1');
  await new TestFeed(server).publish({ id: 'Contoso.Core' });
  const visitor = await Visitor.signedIn(server);
  const tags = Array.from({ length: 130 }, (_, index) => `v${index}`);
  const images = await visitor.page(addressOf('/console/images/team%2Fapp/delete', 'tag', tags));
  t.regex(images, /Only the first 100 of 130 selected ones are shown and changed here/);
  t.deepEqual(hiddenIn(images, 'tag'), tags.slice(0, 100));
  for (const path of ['delete', 'deprecation/change']) {
    const versions = Array.from({ length: 230 }, (_, index) => `1.${index}`);
    const page = await visitor.page(addressOf(`/console/packages/Contoso.Core/${path}`, 'version', versions));
    t.regex(page, /Only the first 200 of 230/, path);
    t.deepEqual(hiddenIn(page, 'version'), versions.slice(0, 200), path);
  }
});

test('selected values are only text', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  for (const text of hostile) {
    const page = await visitor.page(addressOf('/console/tokens', 'id', [text]));
    t.deepEqual(dangers(page), [], text);
    t.regex(page, /<strong>1<\/strong>\s*selected/);
  }
});
