import test from 'ava';
import { databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { entrepot } from '../support/in-process.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const remove = { method: 'DELETE' };
const names = (text: string) => [...text.matchAll(/scope="row"[^>]*>([^<]+)/g)].map(([, name]) => name);

test('pages show and change what is frozen, kept and deleted', async (t) => {
  const server = await startTestServer(t, { deletedFor: '36h' });
  await new TestFeed(server).publish(
    { id: 'Contoso.Core', version: '1.0.0' },
    { id: 'Contoso.Core', version: '2.0.0' },
  );
  const api = new TestRepository(server, 'team/api');
  const first = await api.image('v1');
  const visitor = await Visitor.signedIn(server);
  const preview = await visitor.page('/console/packages/Contoso.Core/delete?version=1.0.0');
  t.regex(preview, /What is deleted can be restored for 1\.5 days, on the page Deleted/);
  const send = (path: string, fields: Record<string, string>) => visitor.send(path, fields);
  const deleted = await send('/console/packages/Contoso.Core/delete', { version: '1.0.0', confirmed: 'yes' });
  t.is(leadsTo(deleted), '/console/packages/Contoso.Core (restorable)');
  t.regex(
    await visitor.page('/console/packages/Contoso.Core'),
    /role="status">Deleted\. <a href="\/console\/deleted">Restore it/,
  );
  t.is((await api.fetch('manifests/v1', remove)).status, 202);
  await api.image('v1');

  const page = await visitor.page('/console/deleted');
  t.regex(page, /team\/api:v1[^]*Contoso\.Core 1\.0\.0/);
  const ids = [...page.matchAll(/name="id" value="(\d+)"/g)].map(([, id]) => id!);
  t.is(ids.length, 2);
  t.notRegex(await visitor.page('/console/deleted?q=CORE'), /team\/api/);
  const [total] = /1 deletion, <span[^>]*>[^<]+/.exec(await visitor.page('/console/deleted?q=CORE')) ?? [];
  t.truthy(total);
  const { items, total: sum } = (await (await server.fetch('/v1/deleted?total=1')).json()) as any;
  const sizes = items.map((each: { type: string; size_bytes: number }) => (each.type === 'tag' ? 0 : each.size_bytes));
  t.deepEqual(sum, { count: 2, size_bytes: Math.max(...sizes) }, 'a tag has no bytes');
  t.deepEqual(names(await visitor.page('/console/deleted?sort=oldest')), names(page).toReversed());
  t.regex(await visitor.page('/console/deleted?q=none'), /Nothing matches\. <a href="\/console\/deleted">Clear/);
  const refused = await send('/console/deleted', { id: ids[0]! });
  t.regex(await visitor.refusedPage(refused), /role="alert">team\/api:v1 exists again, with another manifest/);
  t.is(leadsTo(await send('/console/deleted', { id: ids[1]! })), '/console/deleted (restored)');
  t.is((await server.fetch('/v1/packages/Contoso.Core/1.0.0')).status, 200);
  const noReason = await send(`/console/deleted/${ids[0]}`, { reason: ' ' });
  t.regex(await visitor.page(noReason.headers.get('location')!), /id="reason-error"[^<]*>expected a reason/);
  t.is(leadsTo(await send(`/console/deleted/${ids[0]}`, { reason: 'old' })), '/console/deleted (purged)');
  t.regex(await visitor.page('/console/deleted'), /Nothing was deleted that can be restored/);
  t.is((await api.fetch(`manifests/${first.digest}`)).status, 200, 'only its tag');

  const fields = { 'freeze-images': 'team/*:v*\r\nother', 'keep-packages': 'Contoso.*', 'keep-images': '' };
  t.is(leadsTo(await send('/console/permanence', fields)), '/console/permanence (permanence-changed)');
  t.regex(await visitor.page('/console/permanence'), /team\/\*:v\*\nother<\/textarea>[^]*Contoso\.\*<\/textarea>/);
  const wrong = await send('/console/permanence', { ...fields, 'keep-packages': 'Contoso:1' });
  const again = await visitor.page(wrong.headers.get('location')!);
  t.regex(again, /Contoso:1<\/textarea>\s*<p[^>]*id="keep-packages-error"[^>]*>expected patterns such as Contoso/);
  const kept = await send('/console/packages/Contoso.Core/delete', { version: '1.0.0', confirmed: 'yes' });
  t.is(kept.status, 409);
  t.regex(await kept.text(), /Contoso\.Core 1\.0\.0 cannot be deleted: a rule of this account keeps it/);

  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.notRegex(await reader.page('/console/permanence'), /<textarea/);
  t.regex(await reader.page('/console/permanence'), /team\/\*:v\*, other/);
  t.is((await reader.fetch('/console/deleted')).status, 403);
  t.is((await reader.send('/console/permanence', fields)).status, 403);
});

for (const dialect of dialects)
  test(`${dialect}: a page of a long list of deletions reads a bounded number, and the next one goes on`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const rows = Array.from({ length: 1100 }, (_, index) => ({
      account_id: defaultAccountOf(server),
      kind: 'package',
      type: 'version',
      name: index === 0 ? 'First' : 'Later',
      reference: `${index}.0.0`,
      digest: `sha256:${'0'.repeat(64)}`,
      size_bytes: 10,
      row_id: 1_000_000 + index,
      part_of: 0,
      changed_at: 0,
      deleted_by: '{"kind":"system","id":null,"name":null}',
      deleted_at: Date.now(),
      ends_at: Date.now() + 86_400_000,
    }));
    await databaseOf(server).transaction((tx) => tx.insertNew('deleted_items', rows));
    const list = async (query: string) =>
      (await (await server.fetch(`/v1/deleted?${query}`)).json()) as {
        items: { name: string }[];
        total: unknown;
        next_cursor: string | null;
      };
    const first = await list('q=FIRST&total=1');
    t.deepEqual([first.items, first.total], [[], null]);
    const next = await list(`q=FIRST&cursor=${first.next_cursor}`);
    t.deepEqual([next.items.map(({ name }) => name), next.next_cursor], [['First'], null]);
    t.is((await list('q=FIRST&sort=oldest')).items.length, 1);
    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/deleted?q=first');
    t.regex(page, /Not counted, because that would take too long\.[^]*Nothing on this page\.[^]*rel="next"/);
  });

for (const dialect of dialects) {
  test(`${dialect}: commands show and change what is frozen, kept and deleted`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { data, database: { url }, deletedFor: undefined });
    const run = async (...words: string[]) => {
      const { code, stdout, stderr } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url }, ...words);
      return { code, stdout, stderr };
    };
    const rules = { freeze: { images: ['team/*:v*', 'a'] }, keep: { packages: ['Kept'], images: [] as string[] } };
    t.deepEqual(await run('permanence', 'set', '--freeze-images', 'team/*:v*, a', '--keep-packages', 'Kept'), {
      code: 0,
      stdout: `${JSON.stringify(rules)}\n`,
      stderr: '',
    });
    t.is((await run('permanence', 'set', '--freeze-images', '')).code, 0, 'the others stay');
    const shown = (await run('permanence', 'show')).stdout;
    t.deepEqual(JSON.parse(shown), { ...rules, freeze: { images: [] } });
    const wrong = await run('permanence', 'set', '--keep-packages', 'a:b');
    t.deepEqual([wrong.code, wrong.stdout], [1, '']);
    t.regex(wrong.stderr, /keep\.packages\.0: expected patterns such as Contoso/);

    const feed = new TestFeed(server);
    await feed.publish({ id: 'Kept', version: '1.0.0' }, { id: 'Gone', version: '1.0.0' });
    t.is((await server.fetch('/v1/packages/Kept/1.0.0', remove)).status, 409, 'a running server follows at once');
    t.is((await server.fetch('/v1/packages/Gone/1.0.0', remove)).status, 204);
    const { stdout } = await run('deleted', 'list');
    t.regex(stdout, /^\d+\tversion\tGone\t1\.0\.0\t\S+Z\n$/);
    const [id] = stdout.split('\t');
    await tokenOf(server, ['read'], 'other');
    t.is((await run('deleted', 'list', '--account', 'other')).stdout, '');
    t.is((await run('deleted', 'restore', id!, '--account', 'other')).code, 1);
    t.is((await run('claim', 'release', 'gone', '--kind', 'package')).code, 1);
    t.deepEqual(await run('deleted', 'restore', id!), { code: 0, stdout: '', stderr: '' });
    t.is((await server.fetch('/v1/packages/Gone/1.0.0')).status, 200);
    t.is((await server.fetch('/v1/packages/Gone/1.0.0', remove)).status, 204);
    const [last] = (await run('deleted', 'list')).stdout.split('\t');
    t.is((await run('deleted', 'purge', last!)).code, 1, 'a reason is needed');
    t.is((await run('deleted', 'purge', last!, '--reason', 'x')).code, 0);
    t.deepEqual(await databaseOf(server).select("SELECT id FROM package_versions WHERE version = '1.0.0'"), [
      { id: 1 },
    ]);
    t.is((await run('claim', 'release', 'gone', '--kind', 'package')).code, 0);
  });
}
