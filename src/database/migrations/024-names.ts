import type { Migration } from '../migrate.ts';

/** The name with one kind of separator, as `searchKey` makes it. */
const dotted = (name: string) => `LOWER(REPLACE(REPLACE(REPLACE(${name}, '/', '.'), '-', '.'), '_', '.'))`;

/**
 * The parts of the table `words (owner, name, suffix, level)`: each name from its start and from each separator, as
 * `suffixesOf` makes them.
 */
const suffixes = (owner: string, rows: string) => `WITH RECURSIVE words AS (
    SELECT ${owner}, name, CAST(${dotted('name')} AS CHAR(255)) AS suffix, 1 AS level FROM (${rows}) AS named
    UNION ALL
    SELECT ${owner}, name, SUBSTR(suffix, INSTR(suffix, '.') + 1), level + 1 FROM words
    WHERE INSTR(suffix, '.') > 0 AND level < 16
  )`;

/**
 * Search by name. The tables hold each name of an image repository and of mirrored content once for each of its
 * suffixes that begins after a separator, so that the range of an index has the names with a word that begins with a
 * text. A row of `mirror_words` stays when the entries of its name are evicted.
 *
 * `package_dependencies` has the dependencies of the newest listed version of each hosted package.
 *
 * `tags.sort_key` gives the natural order of tags: see `naturalKey`. It is empty for tags of older releases until they are
 * listed in that order.
 */
export const names: Migration[] = [
  {
    name: '024-1-mirror-words',
    sql: `CREATE TABLE mirror_words (
      kind VARCHAR(32){ascii} NOT NULL,
      suffix VARCHAR(100) NOT NULL,
      upstream VARCHAR(255){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      PRIMARY KEY (kind, suffix, upstream, name)
    ){clustered}`,
  },
  {
    name: '024-2-repository-words',
    sql: `CREATE TABLE repository_words (
      account_id BIGINT NOT NULL,
      suffix VARCHAR(100) NOT NULL,
      name VARCHAR(255) NOT NULL,
      PRIMARY KEY (account_id, suffix, name)
    ){clustered}`,
  },
  {
    name: '024-3-mirror-words-of-entries',
    sql: `INSERT INTO mirror_words (kind, suffix, upstream, name)
      ${suffixes('kind, upstream', "SELECT DISTINCT kind, upstream, name FROM mirror_entries WHERE kind IN ('nupkg', 'manifest')")}
      SELECT DISTINCT kind, SUBSTR(suffix, 1, 100), upstream, name FROM words WHERE suffix <> ''`,
  },
  {
    name: '024-4-repository-words-of-repositories',
    sql: `INSERT INTO repository_words (account_id, suffix, name)
      ${suffixes('account_id', 'SELECT account_id, name FROM repositories')}
      SELECT DISTINCT account_id, SUBSTR(suffix, 1, 100), name FROM words WHERE suffix <> ''`,
  },
  {
    name: '024-5-tags-sort-key',
    sql: "ALTER TABLE tags ADD COLUMN sort_key VARCHAR(260){ascii} NOT NULL DEFAULT ''",
  },
  { name: '024-6-tags-order', sql: 'CREATE INDEX tags_order ON tags (repository_id, sort_key, name)' },
  {
    name: '024-7-manifest-pulls',
    sql: 'ALTER TABLE manifests ADD COLUMN pull_count BIGINT NOT NULL DEFAULT 0',
  },
  { name: '024-8-manifest-last-pull', sql: 'ALTER TABLE manifests ADD COLUMN last_pulled_at BIGINT' },
  {
    name: '024-9-package-dependencies',
    sql: `CREATE TABLE package_dependencies (
      account_id BIGINT NOT NULL,
      dependency_key VARCHAR(128) NOT NULL,
      package_row BIGINT NOT NULL,
      PRIMARY KEY (account_id, dependency_key, package_row)
    ){clustered}`,
  },
  {
    name: '024-10-package-dependencies-package',
    sql: 'CREATE INDEX package_dependencies_package ON package_dependencies (package_row, dependency_key)',
  },
];
