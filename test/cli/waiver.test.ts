import test from 'ava';
import { verbs } from '../../src/accounts/grant-rows.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { applyPolicy } from '../support/inside.ts';
import { waivers } from '../support/waivers.ts';

/** The help of a command on one line. */
async function helpOf(...words: string[]): Promise<string> {
  const { stdout } = await entrepot({}, ...words, '--help');
  return stdout.replaceAll(/\s+/g, ' ');
}

for (const dialect of dialects) {
  test(`${dialect}: commands request, list, approve, reject and end waivers`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const feed = await UpstreamFeed.start(t);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: new Date().toISOString() }] });
    const server = await startMirrorOf(t, [feed.as('feed.test')], { data, database: { url } });
    await applyPolicy(server, { minimumAge: { packages: '9d' } });
    const upstreams = JSON.stringify([feed.as('feed.test')]);
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: upstreams };
    const waiver = (...words: string[]) => entrepot(environment, 'waiver', ...words);
    const request = (reference: string, time: string) =>
      waiver('request', 'Lib', reference, '[2.0, 3.0)', '--lifts', 'age', '--reason', 'see SEC-7', '--for', time);
    const status = async () => (await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg')).status;
    t.is(await status(), 404);
    t.like(await request('1.0', '7d'), { code: 0, stdout: '1\n' });
    t.regex((await request('1.0', '91d')).stderr, /waivers\.longest/);
    t.regex((await request('1.0', 'soon')).stderr, /--for: expected/);
    t.regex((await request('[1.0, )', '7d')).stderr, /first and a last version/);
    const long = ['--lifts', 'age', '--reason', 'x'.repeat(501), '--for', '1d'];
    t.regex((await waiver('request', 'Lib', '1.0', ...long)).stderr, /1 to 500 characters/);
    const lifting = ['--lifts', 'a b', '--reason', 'see SEC-7', '--for', '1d'];
    t.regex(
      (await waiver('request', 'Lib', '1.0', ...lifting)).stderr,
      /expected age, withdrawn, republished, the name/,
    );
    const listed = await waiver('list', '--state', 'requested', '--account', 'default');
    t.regex(
      listed.stdout,
      /^1\trequested\tdefault\t-\tLib\t1\.0\.0,\[2\.0, 3\.0\)\tage\t20[\d-]+T[\d:.]+Z\tsee SEC-7\n$/,
    );
    t.is(await status(), 404);
    t.is((await waiver('approve', '1', '--layer', 'account')).code, 0);
    t.is(await status(), 404, 'the policy of all accounts holds it');
    t.is((await waiver('end', '1')).code, 0);
    await request('1.0.0', '7d');
    t.is((await waiver('approve', '2', '--layer', 'all')).code, 0);
    t.is(await status(), 200);
    const explained = await entrepot(environment, 'explain', 'Lib', '1.0.0');
    t.regex(explained.stdout, /^allow\n[^]*waiver 2 in the policy of all accounts, until 20\S+, by command\n$/);
    t.regex((await waiver('reject', '2')).stderr, /The waiver 2 is approved, so it cannot be rejected/);
    t.is((await waiver('end', '2')).code, 0);
    t.is(await status(), 404);
    await request('1.0.0', '7d');
    t.is((await waiver('reject', '3')).code, 0);
    t.is((await waivers(server, 'GET', '/3')).state, 'rejected');
    t.regex((await waiver('end', '9')).stderr, /There is no waiver 9/);
    t.regex((await waiver('end', 'x')).stderr, /expected the number/);
  });
}

test('the help names all that a waiver lifts, and all that a grant gives', async (t) => {
  t.regex(
    await helpOf('waiver', 'request'),
    /--lifts <what> age, withdrawn, republished, the name of a rule, or the ID/,
  );
  t.true((await helpOf('grant', 'add')).includes(`any of ${verbs.join(',')};`));
});
