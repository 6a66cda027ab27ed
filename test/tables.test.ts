import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import test from 'ava';
import { migrations } from '../src/database/migrations/index.ts';

// Each table belongs to one folder, and only that folder's files name it in SQL. What others need of it, its owner offers.

const src = join(import.meta.dirname, '../src');

const owners: Record<string, string> = {
  accounts: 'accounts',
  policies: 'policy',
  policy_releases: 'policy',
  tokens: 'accounts',
  people: 'accounts',
  grants: 'accounts',
  sessions: 'accounts',
  cookie_key: 'accounts',
  refused_forms: 'accounts',
  publishers: 'identity',
  used_identity_tokens: 'identity',
  blobs: 'storage',
  storage_cursors: 'storage',
  storage_identity: 'storage',
  storage_holds: 'storage',
  packages: 'nuget',
  package_versions: 'nuget',
  package_blobs: 'nuget',
  package_terms: 'nuget',
  package_frameworks: 'nuget',
  package_dependencies: 'nuget',
  package_symbols: 'nuget',
  package_advisories: 'nuget',
  package_comparisons: 'nuget',
  advisory_changes: 'nuget',
  repositories: 'oci',
  repository_words: 'oci',
  manifests: 'oci',
  tags: 'oci',
  repository_blobs: 'oci',
  manifest_references: 'oci',
  uploads: 'oci',
  mirror_entries: 'mirror',
  mirror_words: 'mirror',
  mirror_withdrawn: 'mirror',
  mirror_republished: 'mirror',
  mirror_kept: 'mirror',
  mirror_staged: 'mirror',
  mirror_drops: 'mirror',
  mirror_counted_on: 'mirror',
  bundles: 'bundle',
  bundle_keys: 'bundle',
  bundle_revocations: 'bundle',
  bundle_runs: 'bundle',
  import_runs: 'import',
  import_problems: 'import',
  upstream_samples: 'mirror',
  waivers: 'policy',
  promotions: 'promotion',
  promotion_rules: 'promotion',
  takeovers: 'takeover',
  takeover_names: 'takeover',
  takeover_references: 'takeover',
  adopted_credentials: 'takeover',
  adopted_tries: 'takeover',
  bad_lists: 'known-bad',
  bad_entries: 'known-bad',
  usage_counts: 'usage',
  usage_writers: 'usage',
  storage_samples: 'usage',
  failed_requests: 'usage',
  token_uses: 'usage',
  pulls: 'usage',
  pull_contents: 'usage',
  pull_users: 'usage',
  observed_pushes: 'usage',
  exposures: 'exposure',
  client_checks: 'usage',
  client_check_requests: 'usage',
  mirrored_downloads: 'usage',
  history: 'history',
  permanence: 'permanence',
  deleted_items: 'permanence',
  events: 'events',
  event_positions: 'events',
  webhooks: 'webhooks',
  webhook_deliveries: 'webhooks',
  webhook_cursor: 'webhooks',
  webhook_key: 'webhooks',
  jobs: 'jobs',
  job_runs: 'jobs',
  prefetch_runs: 'jobs',
  probes: 'database',
  instances: 'instances',
};

/** The tables that SQL in `code` names. */
function tablesIn(code: string): Set<string> {
  const words = /\b(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)|\b(?:insert|insertNew|upsert)\(\s*'(\w+)'/g;
  return new Set(
    [...code.matchAll(words)].map(([, inSql, inCall]) => (inSql ?? inCall)!).filter((name) => owners[name]),
  );
}

test('every table has an owner', (t) => {
  const made = migrations.flatMap(({ sql }) => /^CREATE TABLE (\w+)/.exec(sql)?.[1] ?? []);
  t.deepEqual(made.toSorted(), Object.keys(owners).toSorted());
});

test('the table of folders in CONTRIBUTING names the tables of each', async (t) => {
  const text = await readFile(join(src, '../CONTRIBUTING.md'), 'utf8');
  const named = [...text.matchAll(/^\| `([a-z-]+)\/` \|.*\| (.*)\|$/gm)].flatMap(([, folder, cell]) =>
    [...cell!.matchAll(/`(\w+)(\*?)`/g)].flatMap(([, name, star]) => {
      const tables = Object.keys(owners).filter((table) => (star ? table.startsWith(name!) : table === name));
      return tables.length > 0 ? tables.map((table) => [table, folder!]) : [[name!, folder!]];
    }),
  );
  t.deepEqual(Object.fromEntries(named), owners);
  t.is(named.length, Object.keys(owners).length, 'each once');
});

test('only the files of its owner name a table in SQL', async (t) => {
  const entries = await readdir(src, { recursive: true, withFileTypes: true });
  const crossings: Record<string, string[]> = {};
  for (const entry of entries.filter((each) => each.isFile())) {
    const path = relative(src, join(entry.parentPath, entry.name));
    if (path.startsWith('database/migrations/')) continue;
    const room = path.split('/')[0]!;
    const code = (await readFile(join(src, path), 'utf8')).replace(/\/\*[^]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
    const foreign = [...tablesIn(code)].filter((table) => owners[table] !== room).sort();
    if (foreign.length > 0) crossings[path] = foreign;
  }
  t.deepEqual(crossings, {});
});
