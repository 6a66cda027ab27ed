import { join } from 'node:path';
import { mkdir, utimes, writeFile } from 'node:fs/promises';
import test from 'ava';
import { newKeyPair, readSigningKey } from '../../src/bundle/keys.ts';
import { writeRevocation } from '../../src/bundle/statements.ts';
import { allCommands } from '../support/all-commands.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, eventsOf, noteDeletedTag, tokenOf } from '../support/inside.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

/** Commands that change nothing of an installation, whose change is no event of it, or whose events other tests see. */
const without = new Map([
  ['serve', 'its requests and jobs record their own events'],
  ['backup', 'only reads'],
  ['restore', 'makes an installation, with the events of the backup'],
  ['verify', 'only reads'],
  ['storage copy', 'writes only to the other storage'],
  ['doctor', 'only reads'],
  ['exposed', 'only reads'],
  ['explain', 'only reads'],
  ['access explain', 'only reads'],
  ['access list', 'only reads'],
  ['permanence show', 'only reads'],
  ['policy show', 'only reads'],
  ['policy held', 'only reads'],
  ['policy seed', 'its events of waivers are tested with upstreams that answer'],
  ['health', 'only reads'],
  ['client', 'writes files beside the installation'],
  ['client check', 'waits for a request, and changes nothing that others see'],
  ['cert', 'writes a certificate beside the installation'],
  ['prefetch', 'downloads, as a pull does'],
  ['bundle inspect', 'only reads'],
  ['wanted', 'only reads'],
  ['takeover status', 'only reads'],
  ['takeover report', 'only reads, and notes the names that the predecessor has'],
  ['takeover finish', 'its event is tested with a predecessor that answers'],
  ['takeover mirror', 'its event is tested with a predecessor that answers'],
  ['export', 'only reads; the other server records what it gets'],
  ['bundle keygen', 'makes only files'],
  ['bundle revoke', 'makes only files'],
  ['bundle verify', 'only reads'],
  ['usage', 'only reads'],
  ['usage reconcile', 'only reads'],
  ['audit', 'only reads'],
  ['instances', 'only reads'],
  ['webhook test', 'only sends a request'],
  ['webhook deliveries', 'only reads'],
  ['publisher explain', 'only reads'],
]);

/** All commands without those that are only groups of others. */
async function commands(): Promise<string[]> {
  const all = await allCommands();
  return all.filter((name) => name === 'usage' || !all.some((each) => each.startsWith(`${name} `)));
}

for (const dialect of dialects) {
  test(`${dialect}: every command that changes something records an event`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const issuers = [{ name: 'github', issuer: 'https://issuer.test', audience: 'https://hub.test' }];
    const start = () => startTestServer(t, { data, database: { url }, trustedIssuers: issuers });
    let server = await start();
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_UPSTREAMS: JSON.stringify([{ name: 'feed.test', kind: 'nuget', url: 'http://127.0.0.1:9/' }]),
      ENTREPOT_TRUSTED_ISSUERS: JSON.stringify(issuers),
      ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]',
    };
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Lib' }, { id: 'Gone' });
    await server.fetch('/v1/packages/Gone/1.0.0', { method: 'DELETE' });
    const digest = digestOf('lost').slice('sha256:'.length);
    const folder = join(data, 'blobs', 'sha256', digest.slice(0, 2));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, digest), 'lost');
    const longAgo = new Date('2026-01-01');
    await utimes(join(folder, digest), longAgo, longAgo);

    const { digest: image } = await new TestRepository(server, 'app').image('v1');
    const deletions: number[] = [];
    for (const reference of ['back', 'gone'])
      deletions.push(await noteDeletedTag(server, { name: 'app', reference, digest: image }));
    const policy = join(data, 'policy.yaml');
    await writeFile(policy, 'minimumAge: { packages: 3d }\n');

    await mkdir(join(data, 'moved'));
    await writeFile(join(data, 'moved', 'moved.nupkg'), await makeNupkg({ id: 'Moved' }));
    await writeFile(join(data, 'site.pub'), newKeyPair().publicKey.pem);
    const offline = newKeyPair();
    await writeFile(join(data, 'offline.pub'), offline.publicKey.pem);
    const revocation = writeRevocation('0'.repeat(64), readSigningKey(offline.privateKey, 'offline'));
    await writeFile(join(data, 'revoked'), revocation);

    const person = JSON.stringify({ issuer: 'https://a.test', subject: 's', name: 'Ann', claims: [] });
    await databaseOf(server).transaction((tx) => tx.insert('people', { id: 'ann', person, signed_in_at: Date.now() }));
    let id = '';
    const promoted = ['app', 'v1', '--kind', 'image', '--to-account', 'prod'];
    const headers = { 'content-type': 'application/json' };
    const rules = {
      method: 'PUT',
      body: '{"approval":"another"}',
      headers,
      token: await tokenOf(server, ['admin'], 'prod'),
    };
    t.is((await server.fetch('/v1/account/promotion', rules)).status, 200);
    const request = ['Other', '1.0.0', '--lifts', 'age', '--reason', 'see SEC-7', '--for', '7d'];
    const rule = ['--claim', 'repository_id=100', '--scope', 'read'];
    const changes: [command: string, type: string, words: () => string[], then?: (stdout: string) => void][] = [
      ['account create', 'account.created', () => ['team']],
      ['account bills', 'account.bills_changed', () => ['on']],
      ['token create', 'token.created', () => ['--name', 'ci']],
      ['token revoke', 'token.revoked', () => [id]],
      ['publisher create', 'publisher.created', () => ['--name', 'x', '--issuer', 'github', ...rule]],
      ['publisher delete', 'publisher.deleted', () => [id]],
      ['grant add', 'grant.created', () => ['account', 'team', '--may', 'read', '--packages', 'Lib']],
      ['grant accept', 'grant.accepted', () => [id, '--account', 'team']],
      ['grant remove', 'grant.removed', () => [id, '--account', 'team']],
      ['person disable', 'person.disabled', () => ['ann', '--account', 'default', '--reason', 'left']],
      ['person enable', 'person.enabled', () => ['ann', '--account', 'default']],
      ['person limit', 'token.limits_changed', () => ['--scopes', 'read', '--longest', '30d']],
      ['claim release', 'claim.released', () => ['gone', '--kind', 'package']],
      ['deprecate', 'package.deprecated', () => ['Lib', '--all', '--reason', 'Legacy']],
      [
        'advisory create',
        'advisory.created',
        () => ['Lib', '--affected', '[1.0,2.0)', '--severity', 'high', '--url', 'https://a.test/1'],
      ],
      ['advisory delete', 'advisory.deleted', () => [id]],
      [
        'webhook create',
        'webhook.created',
        () => ['--url', 'http://127.0.0.1:9/'],
        (text) => (id = (JSON.parse(text) as { id: string }).id),
      ],
      ['webhook change', 'webhook.updated', () => [id, '--disable']],
      ['webhook redeliver', 'webhook.redelivered', () => [id, '--since', '1d']],
      ['webhook delete', 'webhook.deleted', () => [id]],
      ['permanence set', 'permanence.changed', () => ['--keep-packages', 'None.*']],
      ['deleted restore', 'tag.restored', () => [String(deletions[0])]],
      ['deleted purge', 'tag.purged', () => [String(deletions[1]), '--reason', 'wrong']],
      ['promote', 'promotion.approved', () => ['app', 'v1', '--kind', 'image', '--to-name', 'other']],
      [
        'promote',
        'promotion.requested',
        () => [...promoted, '--to-name', 'rejected'],
        (text) => (id = text.split('\t')[0]!),
      ],
      ['promotion reject', 'promotion.rejected', () => [id]],
      [
        'promote',
        'promotion.requested',
        () => [...promoted, '--to-name', 'app'],
        (text) => (id = text.split('\t')[0]!),
      ],
      ['promotion approve', 'promotion.approved', () => [id]],
      ['policy apply', 'policy.changed', () => [policy]],
      ['policy suspend', 'policy.suspended', () => ['--for', '1h']],
      ['policy resume', 'policy.resumed', () => []],
      ['waiver request', 'waiver.requested', () => request, (text) => (id = text.trim())],
      ['waiver approve', 'waiver.approved', () => [id, '--layer', 'all']],
      ['waiver end', 'waiver.ended', () => [id]],
      ['waiver request', 'waiver.requested', () => request, (text) => (id = text.trim())],
      ['waiver reject', 'waiver.rejected', () => [id]],
      ['bundle trust add', 'bundle.key_trusted', () => [join(data, 'site.pub')]],
      ['bundle trust add', 'bundle.key_trusted', () => [join(data, 'offline.pub'), '--role', 'revoke']],
      ['bundle trust revoke', 'bundle.key_revoked', () => [join(data, 'revoked')]],
      ['bundle trust remove', 'bundle.key_removed', () => ['site']],
      ['bundle create', 'bundle.created', () => ['--stored', '--allow-missing', '--to', join(data, 'bundle')]],
      ['bundle import', 'bundle.imported', () => [join(data, 'bundle'), '--unsigned']],
      ['bundle receipt', 'bundle.receipt', () => ['--to', join(data, 'receipt')]],
      ['import', 'package.published', () => [join(data, 'moved'), '--hosted']],
      ['jobs run', 'job.started', () => ['uploads']],
      ['gc', 'job.started', () => []],
      ['retention', 'job.started', () => []],
      ['scrub', 'job.started', () => []],
      ['gc', 'storage.cleaned', () => ['--files', '--yes']],
      ['adopt', 'storage.adopted', () => []],
    ];
    const shown = (await commands()).filter((each) => !each.endsWith(' list') && !without.has(each));
    t.deepEqual(shown.toSorted(), [...new Set(changes.map(([command]) => command))].toSorted());
    for (const [command, type, words, then] of changes) {
      await eventsOf(server).dispatch();
      const before = await eventsOf(server).latest();
      // It is refused beside a live server.
      if (command === 'adopt') await server.close();
      const done = await entrepot(environment, ...command.split(' '), ...words());
      t.is(done.code, 0, `${command}: ${done.stderr}`);
      if (command === 'adopt') server = await start();
      then?.(done.stdout);
      const event = (await auditOf(server, `after=${before}`)).find((each) => each.type === type);
      t.like(event, { actor: { kind: 'system', name: 'command' } }, command);
      const details = event?.details ?? {};
      const made = details['token_id'] ?? details['publisher_id'] ?? details['grant_id'] ?? details['advisory'];
      if (typeof made === 'string') id = made;
    }
  });
}
