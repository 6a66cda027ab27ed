import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { auditOf } from '../support/audit.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: commands deprecate versions and write advisories beside a running server`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { data, database: { url } });
    const feed = new TestFeed(server);
    for (const version of ['1.0.0', '1.1.0', '2.0.0']) await feed.publish({ id: 'Contoso.Old', version });
    const run = (...words: string[]) => entrepot({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url }, ...words);
    const deprecated = async () => {
      const { items } = await feed.json('/registration-gz-semver2/contoso.old/index.json');
      return items[0].items.map(({ catalogEntry }: any) => catalogEntry.deprecation ?? null);
    };
    const refused = async (message: RegExp, ...words: string[]) => {
      const { code, stdout, stderr } = await run(...words);
      t.deepEqual([code, stdout], [1, ''], words.join(' '));
      t.regex(stderr, message);
    };
    t.deepEqual(
      await run(
        'deprecate',
        'contoso.old',
        '--version',
        '1.0',
        '1.1.0',
        '--reason',
        'Legacy',
        'Other',
        '--message',
        'Old',
        '--alternative',
        'Contoso.New@[2.0.0]',
      ),
      { code: 0, stdout: '2\n', stderr: '' },
    );
    const shown = {
      reasons: ['Legacy', 'Other'],
      message: 'Old',
      alternatePackage: { id: 'Contoso.New', range: '[2.0.0, 2.0.0]' },
    };
    t.deepEqual(await deprecated(), [shown, shown, null]);
    t.is(
      (await run('deprecate', 'Contoso.Old', '--all', '--reason', 'CriticalBugs', '--alternative', 'Contoso.New'))
        .stdout,
      '3\n',
    );
    const bugs = { reasons: ['CriticalBugs'], alternatePackage: { id: 'Contoso.New', range: '*' } };
    t.deepEqual(await deprecated(), [bugs, bugs, bugs]);
    t.is((await run('deprecate', 'Contoso.Old', '--undo', '--version', '2.0.0', '--version', '1.0.0')).stdout, '2\n');
    t.deepEqual(await deprecated(), [null, bugs, null]);
    const [event] = await auditOf(server, 'type=package.undeprecated');
    t.deepEqual([event!.actor.kind, event!.actor.name], ['system', 'command']);

    await refused(/--version, or --all/, 'deprecate', 'Contoso.Old', '--reason', 'Legacy');
    await refused(
      /--version, or --all/,
      'deprecate',
      'Contoso.Old',
      '--reason',
      'Legacy',
      '--all',
      '--version',
      '1.0.0',
    );
    await refused(/reasons Legacy, CriticalBugs, Other/, 'deprecate', 'Contoso.Old', '--all');
    await refused(/--undo takes no/, 'deprecate', 'Contoso.Old', '--all', '--undo', '--message', 'x');
    await refused(/does not host Contoso.Old 3.0.0/, 'deprecate', 'Contoso.Old', '--version', '3.0.0', '--undo');
    await refused(/no account "none"/, 'deprecate', 'Contoso.Old', '--all', '--undo', '--account', 'none');

    const create = ['advisory', 'create', 'contoso.old', '--affected', '[1.0.0, 2.0.0)', '--url', 'https://x.test/1'];
    const { stdout: id } = await run(...create, '--severity', 'High');
    t.is((await run('advisory', 'list')).stdout, `${id.trim()}\tContoso.Old\t[1.0.0, 2.0.0)\thigh\thttps://x.test/1\n`);
    t.deepEqual(await feed.json('/vulnerabilities/base.json'), {
      'contoso.old': [{ severity: 2, url: 'https://x.test/1', versions: '[1.0.0, 2.0.0)' }],
    });
    await refused(/--severity is one of low, moderate/, ...create, '--severity', '4');
    await refused(/exists already/, ...create, '--severity', '0');
    t.is((await run('advisory', 'delete', id.trim())).code, 0);
    await refused(/no such advisory/, 'advisory', 'delete', id.trim());
    t.is((await run('advisory', 'list')).stdout, '');
  });
}

test('the version of the program is still printed, and only before a command', async (t) => {
  t.regex((await entrepot({}, '--version')).stdout, /^\d+\.\d+\.\d+\n$/);
  const { stdout } = await entrepot({}, 'deprecate', '--help');
  t.regex(stdout, /--version <versions\.\.\.>/);
});
