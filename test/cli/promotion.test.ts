import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

/** The numbers of the lines. */
const numbers = (text: string) => [...text.matchAll(/^\d+/gm)].map(([number]) => number);

for (const dialect of dialects) {
  test(`${dialect}: commands promote, list, approve and reject`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { data, database: { url } });
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
    const command = (...words: string[]) => entrepot(environment, ...words);
    const prod = await tokenOf(server, ['read', 'write', 'promote', 'admin'], 'prod');
    const rules = (body: object) =>
      server.fetch('/v1/account/promotion', {
        method: 'PUT',
        token: prod,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    t.is((await rules({ from: ['default'] })).status, 200);
    await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' }, { id: 'Lib', version: '2.0.0' });
    const { digest } = await new TestRepository(server, 'app').image('v1');
    const there = new TestFeed(server, prod);
    const versions = async () => (await there.json<{ versions: string[] }>('/package/lib/index.json')).versions;

    const promoteLib = (version: string, ...more: string[]) =>
      command('promote', 'Lib', version, '--to-account', 'prod', ...more);
    t.like(await promoteLib('1.0', '--reason', 'release 7'), { code: 0, stdout: '1\tdone\n', stderr: '' });
    t.deepEqual(await versions(), ['1.0.0']);
    t.like(await command('promote', 'app', 'v1', '--kind', 'image', '--to-name', 'stable/app'), {
      code: 0,
      stdout: '2\tdone\n',
    });
    t.is((await server.fetch('/v2/stable/app/manifests/v1')).headers.get('docker-content-digest'), digest);
    t.is((await rules({ from: ['default'], approval: 'another' })).status, 200);
    t.is((await promoteLib('2.0.0', '--reason', 'x'.repeat(500))).stdout, '3\trequested\n');
    t.is(
      (await promoteLib('2.0.0', '--reason', 'x'.repeat(501))).stderr,
      'entrepot: --reason: expected at most 500 characters.\n',
    );

    const list = async (...words: string[]) => (await command('promotion', 'list', ...words)).stdout;
    const lines = (await list())
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t'));
    t.deepEqual(
      lines.map((columns) => columns.toSpliced(7, 1)),
      [
        ['3', 'requested', 'default', 'Lib', '2.0.0', 'prod', 'Lib', 'x'.repeat(500)],
        ['2', 'done', 'default', 'app', 'v1', 'default', 'stable/app', ''],
        ['1', 'done', 'default', 'Lib', '1.0.0', 'prod', 'Lib', 'release 7'],
      ],
    );
    t.is(lines[1]![7], digest);

    t.deepEqual(numbers(await list('--account', 'prod')), ['3', '1']);
    t.deepEqual(numbers(await list('--account', 'prod', '--state', 'requested')), ['3']);
    t.deepEqual(numbers(await list('--state', 'rejected')), []);
    for (const wrong of ['1x', 'x1', '', '1234567890123456'])
      for (const decide of ['approve', 'reject'])
        t.is(
          (await command('promotion', decide, wrong)).stderr,
          `entrepot: ${wrong}: expected the number of a promotion.\n`,
        );
    t.is((await command('promotion', 'approve', '9')).stderr, 'entrepot: There is no promotion 9.\n');
    t.like(await command('promotion', 'reject', '3'), { code: 0, stdout: '' });
    t.deepEqual(numbers(await list('--state', 'rejected')), ['3']);
    t.regex((await command('promotion', 'approve', '3')).stderr, /rejected/);
    t.is((await promoteLib('2.0.0')).stdout, '4\trequested\n');
    // The operator of the machine may approve also what a command asked for.
    t.like(await command('promotion', 'approve', '4'), { code: 0, stdout: '', stderr: '' });
    t.deepEqual(await versions(), ['1.0.0', '2.0.0']);
    for (const words of [
      ['promote', 'Lib', '1.0.0', '--kind', 'nuget'],
      ['promotion', 'list', '--account', 'none'],
    ])
      t.is((await command(...words)).code, 1, words.join(' '));
  });
}
