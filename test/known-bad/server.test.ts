import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { applyPolicy, runJob } from '../support/inside.ts';
import { hour, linesOf, osv } from '../support/known-bad.ts';
import { parseMetrics } from '../support/metrics.ts';
import { startTestServer } from '../support/server.ts';
import { eventually, until } from '../support/until.ts';

for (const dialect of dialects) {
  test(`${dialect}: a job reads the lists, and metrics, events and doctor tell of them`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, linesOf([osv('MAL-1', 'a'), osv('MAL-2', 'b')]));
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    server.clock.now = Date.UTC(2040, 0, 1);
    await applyPolicy(server, { knownBad: { lists: [{ name: 'osv', file }] } });
    const finding = async () => {
      const found = await examine(server.installation, server.clock.time);
      const { ok, text } = found.find(({ subject }) => subject === 'list osv')!;
      return `${ok ? 'ok' : 'FAIL'}: ${text}`;
    };
    t.regex(
      await finding(),
      /^FAIL: it was never read, so it refuses nothing\. Correct its source, then run ".*jobs run known-bad"$/,
    );
    t.deepEqual(await runJob(server, 'known-bad'), {
      lists_read: 1,
      lists_unchanged: 0,
      lists_failed: 0,
      lists_removed: 0,
      entries: 2,
    });
    t.is(await finding(), 'ok: 2 entries, last read at 2040-01-01T00:00:00.000Z');
    await rm(file);
    server.clock.now += 6 * hour;
    t.like(await runJob(server, 'known-bad'), { lists_failed: 1 });
    t.is(
      await finding(),
      'ok: 2 entries, last read at 2040-01-01T00:00:00.000Z; the last attempt failed, because it cannot be read: there is no such file or folder',
    );
    server.clock.now += 12 * hour;
    t.regex(await finding(), /^ok: /, 'not older than three times');
    server.clock.now += 1;
    t.regex(await finding(), /^FAIL: it is too old: 2 entries, .* no such file or folder\. Correct its source/);

    const scrape = async () => parseMetrics(await (await server.fetch('/metrics')).text());
    const age = 'entrepot_known_bad_list_age_seconds';
    const metrics = await eventually(scrape, (found) => found.value(age, { list: 'osv' }) !== undefined);
    t.is(metrics.value(age, { list: 'osv' }), 18 * 3600 + 0.001);
    t.is(metrics.value('entrepot_known_bad_list_entries', { list: 'osv' }), 2);
    t.is(metrics.value('entrepot_known_bad_list_failures', { list: 'osv' }), 1);
    t.is(metrics.value('entrepot_job_items_total', { job: 'known-bad', item: 'lists_failed' }), 1);

    const events = await auditOf(server, 'type=known_bad.*');
    t.deepEqual(
      events.map(({ type, subject, account, actor }) => [type, subject, account, actor.kind]),
      [
        ['known_bad.refreshed', { kind: 'list', name: 'osv' }, null, 'system'],
        ['known_bad.failed', { kind: 'list', name: 'osv' }, null, 'system'],
      ],
    );
  });
}

test('a user can have a list read before its time has come', async (t) => {
  const file = join(await folderUntilEnd(t), 'list.jsonl');
  const server = await startTestServer(t);
  server.clock.now = Date.UTC(2040, 0, 1);
  const { knownBad } = server.installation.core;
  const list = { name: 'own', file };
  await writeFile(file, linesOf([osv('MAL-1', 'one')]));
  await applyPolicy(server, { knownBad: { lists: [list] } });
  t.like(await runJob(server, 'known-bad'), { lists_read: 1 });
  await writeFile(file, linesOf([osv('MAL-1', 'one'), osv('MAL-2', 'two')]));
  t.like(await runJob(server, 'known-bad'), { lists_read: 1, entries: 2 });
  t.is((await knownBad.of('package', 'two')).length, 1);
  t.like(await runJob(server, 'known-bad'), { lists_read: 0, lists_unchanged: 1 });
  await writeFile(file, linesOf([osv('MAL-3', 'three')]));
  t.is((await server.fetch('/v1/jobs/known-bad/runs', { method: 'POST' })).status, 204);
  await until(async () => (await knownBad.of('package', 'three')).length > 0);
  t.is((await knownBad.of('package', 'one')).length, 0);
});

test('without lists, nothing is told of them', async (t) => {
  const server = await startTestServer(t);
  t.deepEqual(await server.installation.core.knownBad.of('package', 'a'), []);
  t.like(await runJob(server, 'known-bad'), { lists_read: 0, lists_removed: 0 });
  t.false((await examine(server.installation, server.clock.time)).some(({ subject }) => subject.startsWith('list ')));
});
