import type { Migration } from '../migrate.ts';

/**
 * Package versions that the age of a layer does not hold, because they fix a known vulnerability, or because such a fix needs
 * them: then the fix is `fixed_name` and `fixed_version`, which was published at `published_at`. `layer` is the account whose policy it
 * is, and 0 for the one of all accounts. `advisories` is a JSON list of IDs.
 */
export const policyReleases: Migration[] = [
  {
    name: '053-1-policy-releases',
    sql: `CREATE TABLE policy_releases (
      layer BIGINT NOT NULL,
      upstream VARCHAR(255){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      version VARCHAR(255){ascii} NOT NULL,
      fixed_name VARCHAR(255) NOT NULL,
      fixed_version VARCHAR(255){ascii} NOT NULL,
      advisories VARCHAR(2000) NOT NULL,
      published_at BIGINT,
      released_at BIGINT NOT NULL,
      PRIMARY KEY (upstream, name, version, layer)
    )`,
  },
  { name: '053-2-policy-releases-age', sql: 'CREATE INDEX policy_releases_age ON policy_releases (released_at)' },
];
