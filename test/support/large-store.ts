import { openCloner } from '../../scripts/bench/growth/clones.ts';
import { TestFeed } from './feed.ts';
import { TestRepository } from './registry.ts';
import type { TestServer } from './server.ts';
import { until } from './until.ts';

// A server with as many rows as a busy account has, cloned inside the database.

export const large = {
  package: 'Large.Package',
  image: 'large/app',
  /** Each has 1,900 tags on one manifest. */
  tagged: [] as { name: string; digest: string }[],
  webhook: '',
  delivery: '',
  token: '',
  publisher: '',
  digest: '',
};

/** Numbers of clones. */
const counts = { repositories: 150, tags: 1000, manifests: 20_000, events: 50_000, deliveries: 50_000, tokens: 900 };

const json = { 'content-type': 'application/json' };

/** Fills the database at `url` of `server`, and resolves to the names of what is large. */
export async function fillLargeStore(server: TestServer, url: string): Promise<typeof large> {
  const made = { ...large };
  for (const version of ['1.0.0', '2.0.0']) await new TestFeed(server).publish({ id: made.package, version });
  made.digest = (await new TestRepository(server, made.image).image('1.0')).digest;
  made.tagged = [];
  for (const name of ['tagged/one', 'tagged/two', 'tagged/three'])
    made.tagged.push({ name, digest: (await new TestRepository(server, name).image('1.0')).digest });
  await new TestRepository(server, 'many/app').image('1.0');
  const post = async (path: string, body: object) => {
    const response = await server.fetch(path, { method: 'POST', headers: json, body: JSON.stringify(body) });
    if (response.status !== 201) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as { id: string };
  };
  made.webhook = (await post('/v1/webhooks', { url: 'https://receiver.invalid/', events: ['token.revoked'] })).id;
  made.token = (await post('/v1/tokens', { name: 'one of many', scopes: ['read'] })).id;
  const claims = { repository_owner_id: '1', ref: ['refs/heads/main'] };
  made.publisher = (await post('/v1/publishers', { name: 'rule', issuer: 'ci', claims, scopes: ['read'] })).id;
  const { id: revoked } = await post('/v1/tokens', { name: 'revoked', scopes: ['read'] });
  await server.fetch(`/v1/tokens/${revoked}`, { method: 'DELETE' });
  const deliveries = async () => {
    const response = await server.fetch(`/v1/webhooks/${made.webhook}/deliveries`);
    return ((await response.json()) as { items: { id: string }[] }).items;
  };
  await until(async () => (await deliveries()).length === 1, 30_000);
  made.delivery = (await deliveries())[0]!.id;

  const cloner = await openCloner(url);
  try {
    const one = async (sql: string) => Object.values((await cloner.read(sql))[0] ?? {})[0];
    const repository = async (name: string) => Number(await one(`SELECT id FROM repositories WHERE name = '${name}'`));
    const [app, many] = [await repository(made.image), await repository('many/app')];
    const digest = `CONCAT('sha256:', ${cloner.hex('n')})`;
    const tag = { name: "CONCAT('2.', n)", sort_key: "CONCAT('2.', SUBSTR(CONCAT('000000000', n), -9))" };
    await cloner.clone('tags', `repository_id = ${app}`, 1, counts.manifests, { ...tag, digest });
    await cloner.clone('manifests', `repository_id = ${app}`, 1, counts.manifests, { digest });
    for (const { name } of made.tagged)
      await cloner.clone('tags', `repository_id = ${await repository(name)}`, 1, 1899, tag);
    const base = Number(await one('SELECT MAX(id) FROM repositories'));
    const owner = `${base} + 1 + (n - 1 - (n - 1) % ${counts.tags}) / ${counts.tags}`;
    await cloner.clone('repositories', `id = ${many}`, 1, counts.repositories, {
      id: `${base} + n`,
      name: "CONCAT('many/app', n)",
      tag_count: String(counts.tags),
    });
    await cloner.clone('manifests', `repository_id = ${many}`, 1, counts.repositories, {
      repository_id: `${base} + n`,
    });
    const tags = counts.repositories * counts.tags;
    await cloner.clone('tags', `repository_id = ${many}`, 1, tags, { ...tag, repository_id: owner });
    await cloner.run(`UPDATE repositories SET tag_count = ${counts.manifests + 1} WHERE id = ${app}`);
    await cloner.clone('events', `id = (SELECT MIN(id) FROM events)`, 1, counts.events, { position: '1000000 + n' });
    const delivery = Number(await one('SELECT number FROM webhook_deliveries'));
    await cloner.clone('webhook_deliveries', `number = ${delivery}`, 1, counts.deliveries, {
      number: `${delivery} + n`,
      id: "CONCAT('00000000-0000-4000-8000-', SUBSTR(CONCAT('000000000000', n), -12))",
      event_position: '1000000 + n',
      state: "'failed'",
    });
    await cloner.clone('tokens', `id = '${made.token}'`, 1, counts.tokens, {
      id: "CONCAT('00000000-0000-4000-8000-', SUBSTR(CONCAT('000000000000', n), -12))",
      hash: cloner.hex('n'),
    });
    await cloner.clone('publishers', `id = '${made.publisher}'`, 1, 199, {
      id: "CONCAT('00000000-0000-4000-8000-', SUBSTR(CONCAT('000000000000', n), -12))",
      name: "CONCAT('rule ', n)",
    });
    // MariaDB knows the new numbers of rows only a while later, and chooses slow plans until then.
    if (!url.startsWith('sqlite:')) await cloner.run('ANALYZE TABLE tags, manifests, repositories, events, tokens');
  } finally {
    await cloner.close();
  }
  return made;
}
