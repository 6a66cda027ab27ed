import type { NameSet } from '../../accounts/names.ts';
import { placeholders, type Database, type Value } from '../../database/database.ts';
import { rankedRows } from '../../database/ranked-rows.ts';
import { type Rank } from '../../runtime/ranked.ts';
import { isDigestBeginning, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { nameQuery } from '../../mirror/store/words.ts';
import type { Content } from '../../storage/files/content.ts';
import { isIndex, mediaTypes, type Descriptor } from '../format/manifest.ts';
import { naturalKey } from '../hosted/natural-order.ts';
import { hasManifest } from '../hosted/repositories.ts';
import { attachedTags } from '../format/reference.ts';
import { attachedKind, cosignTags, predicateKey, sigstoreBundle, type AttachedKind } from './attached.ts';
import type { Images } from './images.ts';
import {
  cannotSort,
  imageOrders,
  maxAliases,
  tagsShown,
  type DescribedManifest,
  type FoundRepository,
  type ImageList,
  type ListedManifest,
  type ListedTag,
  type RepositoryFilter,
  type RepositoryOrder,
  type RepositorySummary,
  type StoredRepository,
  type TagQuery,
  type TagSummary,
  type ManifestInList,
} from './repository.ts';

/** Tags of an older release that get their keys when a repository is listed. */
const filledAtOnce = 500;
/** Sorts after each digit of a digest. */
const afterDigits = 'g';
/** Most types of what is attached to the manifests of a page. */
const maxAttached = 1000;
/** Most tags that are sorted by the numbers of their manifests, and most images of their indexes for a sort by pulls. */
const maxSorted = 5000;
const maxCounted = 20_000;
/** Most tags and indexes of one manifest. */
const maxReferences = 100;
/** The columns of a row `m` of `manifests`, as lists name them. */
const manifestColumns = `m.digest, m.media_type AS mediaType, m.image_bytes AS sizeBytes, m.pushed_at AS updatedAt,
  m.pull_count AS pullCount, m.last_pulled_at AS lastPulledAt`;
/** The columns of a row `t` of `tags` with its manifest `m`. */
const tagColumns = `t.name, t.digest, m.media_type AS mediaType, m.image_bytes AS sizeBytes, t.updated_at AS updatedAt,
  NULL AS withdrawnAt`;
const indexTypes = [mediaTypes.index, mediaTypes.dockerList].map((each) => `'${each}'`).join(', ');
/** By what tags are sorted. The pulls of an index are those of its images. */
const tagOrders: Record<TagQuery['order'], string> = {
  asc: 't.sort_key',
  desc: 't.sort_key',
  newest: 't.updated_at',
  oldest: 't.updated_at',
  size: 'm.image_bytes',
  pulls: `CASE WHEN m.media_type IN (${indexTypes}) THEN COALESCE((SELECT SUM(c.pull_count) FROM manifest_references f
    CROSS JOIN manifests c ON c.repository_id = m.repository_id AND c.digest = f.digest
    WHERE f.manifest_id = m.id), m.pull_count) ELSE m.pull_count END`,
};
const taggedManifests = 'tags t JOIN manifests m ON m.repository_id = t.repository_id AND m.digest = t.digest';

/** The hosted images of accounts. */
export class HostedImages implements ImageList {
  readonly origin = 'hosted';
  readonly #database: Database;
  readonly #images: Images;

  constructor(database: Database, images: Images) {
    this.#database = database;
    this.#images = images;
  }

  async list(accountId: number, limit: number, after: string, only?: NameSet, tags = tagsShown) {
    const among = only?.where('r.name');
    const condition = `r.account_id = ? AND r.name > ? ${among ? `AND ${among.sql}` : ''}`;
    const rows = await summaries(this.#database, condition, [accountId, after, ...(among?.values ?? []), limit]);
    const found: RepositorySummary[] = [];
    for (const { id, ...row } of rows) {
      const sql = `SELECT ${tagColumns} FROM ${taggedManifests} WHERE t.repository_id = ? ORDER BY t.name LIMIT ?`;
      const shown = tags > 0 ? await this.#database.select<TagSummary>(sql, [id, tags]) : [];
      found.push({ ...row, upstream: null, tags: shown });
    }
    return found;
  }

  async ranked(accountId: number, { sort, ...filter }: RepositoryOrder, limit: number, after: Rank | undefined) {
    const { sql, values } = filtered(accountId, filter);
    const statement = {
      columns: summaryColumns,
      from: `repositories r WHERE ${sql}`,
      values,
      value: sort && `r.${imageOrders[sort].column}`,
      name: 'r.name',
    };
    const rows = await rankedRows<SummaryRow>(this.#database, statement, limit, after);
    return rows.map(({ rank, item: { id: _id, ...row } }) => ({ rank, item: { ...row, upstream: null, tags: [] } }));
  }

  async total(accountId: number, filter: RepositoryFilter) {
    const { sql, values } = filtered(accountId, filter);
    return (await this.#database.get<{ count: number; bytes: number }>(
      `SELECT COUNT(*) AS count, COALESCE(SUM(r.size_bytes), 0) AS bytes FROM repositories r WHERE ${sql}`,
      values,
    ))!;
  }

  async find(
    accountId: number,
    text: string,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<FoundRepository[]> {
    if (isDigestBeginning(text.trim())) return this.#withDigest(accountId, text.trim(), limit, after, only);
    const query = nameQuery(text);
    if (!query) return [];
    const found = await this.#images.repositories.find(accountId, query, limit, after, only);
    return found.map((each) => ({ ...each, upstream: null }));
  }

  /** The manifests whose digest begins so, by digest. A position is a digest and a name. */
  async #withDigest(accountId: number, beginning: string, limit: number, after: string, only?: NameSet) {
    const among = only?.where('r.name');
    const [digest = '', name = ''] = after.split(' ');
    const rows = await this.#database.select<{ name: string; pulls: number; digest: Digest }>(
      `SELECT r.name, r.pull_count AS pulls, m.digest FROM manifests m JOIN repositories r ON r.id = m.repository_id
       WHERE m.digest >= ? AND m.digest < ? AND (m.digest > ? OR (m.digest = ? AND r.name > ?)) AND r.account_id = ?
       ${among ? `AND ${among.sql}` : ''} ORDER BY m.digest, r.name LIMIT ?`,
      [beginning, beginning + afterDigits, digest, digest, name, accountId, ...(among?.values ?? []), limit],
    );
    return rows.map((each) => ({ ...each, position: `${each.digest} ${each.name}`, upstream: null }));
  }

  repository(accountId: number, name: string, id: number): StoredRepository {
    return new HostedRepository(this.#database, this.#images, accountId, name, id);
  }
}

class HostedRepository implements StoredRepository {
  readonly name: string;
  readonly upstream = null;
  readonly #database: Database;
  readonly #images: Images;
  readonly #accountId: number;
  readonly #id: number;

  constructor(database: Database, images: Images, accountId: number, name: string, id: number) {
    this.#database = database;
    this.#images = images;
    this.#accountId = accountId;
    this.name = name;
    this.#id = id;
  }

  async summary(): Promise<RepositorySummary | undefined> {
    const [found] = await summaries(this.#database, 'r.id = ?', [this.#id, 1]);
    if (!found) return undefined;
    const { id: _id, ...row } = found;
    return { ...row, upstream: null, tags: [] };
  }

  async digestOf(tag: string): Promise<Digest | undefined> {
    const sql = 'SELECT digest FROM tags WHERE repository_id = ? AND name = ?';
    return (await this.#database.get<{ digest: Digest }>(sql, [this.#id, tag]))?.digest;
  }

  async open(kind: 'manifest' | 'blob', digest: Digest): Promise<Content> {
    const { manifests, blobs } = this.#images;
    if (kind === 'blob') return blobs.open(this.#accountId, this.name, digest);
    return (await manifests.open(this.#accountId, this.name, { digest })).content;
  }

  async tags(
    { text, order, hidesAttached }: TagQuery,
    limit: number,
    after: ListedTag['key'] | undefined,
  ): Promise<ListedTag[]> {
    await this.#fillKeys();
    const column = tagOrders[order];
    if (order === 'size' || order === 'pulls') await this.#checkCount(order);
    const [than, direction] = order === 'asc' || order === 'oldest' ? ['>', 'ASC'] : ['<', 'DESC'];
    const conditions = [
      ...(after ? [`(${column} ${than} ? OR (${column} = ? AND t.name ${than} ?))`] : []),
      ...(text === '' ? [] : ["LOWER(t.name) LIKE ? ESCAPE '!'"]),
      ...(hidesAttached ? attachedTags.map((each) => `t.name NOT LIKE '${each}%'`) : []),
    ];
    const rows = await this.#database.select<Omit<ListedTag, 'key' | 'aliases'> & { place: string | number }>(
      `SELECT ${tagColumns}, ${column} AS place, m.pull_count AS pullCount, m.last_pulled_at AS lastPulledAt
       FROM ${taggedManifests} WHERE t.repository_id = ? ${conditions.map((each) => `AND ${each}`).join(' ')}
       ORDER BY ${column} ${direction}, t.name ${direction} LIMIT ?`,
      [
        this.#id,
        ...(after ? [after[0], after[0], after[1]] : []),
        ...(text === '' ? [] : [`%${text.replace(/[!%_]/g, '!$&')}%`]),
        limit,
      ],
    );
    const aliases = await this.#aliases(rows);
    return rows.map(({ place, ...row }) => ({
      ...row,
      key: [place, row.name],
      aliases: (aliases.get(row.digest) ?? []).filter((name) => name !== row.name).slice(0, maxAliases),
    }));
  }

  /** Throws `Invalid` for tags that are too many to be sorted by the numbers of their manifests, for which there is no index. */
  async #checkCount(order: 'size' | 'pulls'): Promise<void> {
    const tags = `SELECT name FROM tags WHERE repository_id = ? ORDER BY name LIMIT 1 OFFSET ${maxSorted}`;
    if (await this.#database.get(tags, [this.#id])) throw cannotSort(`the image has more than ${maxSorted} tags`);
    if (order === 'size') return;
    const counted = `SELECT f.digest FROM ${taggedManifests} JOIN manifest_references f ON f.manifest_id = m.id
      WHERE t.repository_id = ? AND m.media_type IN (${indexTypes}) LIMIT 1 OFFSET ${maxCounted}`;
    if (await this.#database.get(counted, [this.#id]))
      throw cannotSort(`the indexes of the tags have more than ${maxCounted} images`);
  }

  /** Writes the sort keys of tags that an older release has written. While the database cannot be written, they come first. */
  async #fillKeys(): Promise<void> {
    const rows = await this.#database.select<{ name: string }>(
      "SELECT name FROM tags WHERE repository_id = ? AND sort_key = '' LIMIT ?",
      [this.#id, filledAtOnce],
    );
    if (rows.length === 0) return;
    try {
      await this.#database.transaction(
        async (tx) => {
          for (const { name } of rows) {
            const sql = 'UPDATE tags SET sort_key = ? WHERE repository_id = ? AND name = ?';
            await tx.run(sql, [naturalKey(name), this.#id, name]);
          }
        },
        { fleeting: true },
      );
    } catch (error) {
      if (!isDomainError(error)) throw error;
    }
  }

  /** The first tags of each digest, each from its own range of the index. */
  async #aliases(rows: readonly { digest: Digest }[]): Promise<Map<Digest, string[]>> {
    const digests = [...new Set(rows.map(({ digest }) => digest))];
    if (digests.length === 0) return new Map();
    const one = `SELECT * FROM (
      SELECT name, digest FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${maxAliases + 1}) AS some`;
    const found = await this.#database.select<{ name: string; digest: Digest }>(
      digests.map(() => one).join(' UNION ALL '),
      digests.flatMap((digest) => [this.#id, digest]),
    );
    const byDigest = Map.groupBy(found, ({ digest }) => digest);
    return new Map([...byDigest].map(([digest, some]) => [digest, some.map(({ name }) => name)]));
  }

  async manifests(limit: number, after: string) {
    const rows = await this.#database.select<
      Omit<ManifestInList, 'isChild' | 'isTagged'> & { child: number | null; tagged: number | null }
    >(
      `SELECT ${manifestColumns}, m.artifact_type AS artifactType, m.subject,
         (SELECT 1 FROM tags t WHERE t.repository_id = m.repository_id AND t.digest = m.digest LIMIT 1) AS tagged,
         (SELECT 1 FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
          WHERE f.digest = m.digest AND p.repository_id = m.repository_id LIMIT 1) AS child
       FROM manifests m WHERE m.repository_id = ? AND m.digest > ? ORDER BY m.digest LIMIT ?`,
      [this.#id, after, limit],
    );
    const items = rows.map(({ child, tagged, ...row }) => ({
      ...row,
      isChild: child !== null,
      isTagged: tagged !== null,
    }));
    return { items, next: rows.length < limit ? undefined : rows.at(-1)!.digest };
  }

  async manifest(digest: Digest): Promise<DescribedManifest | undefined> {
    const row = await this.#database.get<ListedManifest>(
      `SELECT ${manifestColumns} FROM manifests m WHERE m.repository_id = ? AND m.digest = ?`,
      [this.#id, digest],
    );
    if (!row) return undefined;
    const tags = await this.#database.select<{ name: string }>(
      `SELECT name FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${maxReferences}`,
      [this.#id, digest],
    );
    const indexes = await this.#database.select<{ digest: string }>(
      `SELECT p.digest FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
       WHERE f.digest = ? AND p.repository_id = ? LIMIT ${maxReferences}`,
      [digest, this.#id],
    );
    return {
      ...row,
      tags: tags.map(({ name }) => name),
      withdrawnTags: [],
      indexes: indexes.map((each) => each.digest),
    };
  }

  /** A client requests an index first, and that alone is no pull. */
  async withPulls<T extends ListedManifest>(rows: readonly T[]): Promise<T[]> {
    const indexes = rows.filter(({ mediaType }) => isIndex(mediaType)).map(({ digest }) => digest);
    if (indexes.length === 0) return [...rows];
    const found = await this.#database.select<{ digest: Digest; pulls: number; last: number | null }>(
      `SELECT p.digest, SUM(c.pull_count) AS pulls, MAX(c.last_pulled_at) AS last FROM manifests p
       CROSS JOIN manifest_references f ON f.manifest_id = p.id
       CROSS JOIN manifests c ON c.repository_id = p.repository_id AND c.digest = f.digest
       WHERE p.repository_id = ? AND p.digest IN (${placeholders(indexes)}) GROUP BY p.digest`,
      [this.#id, ...indexes],
    );
    const pulls = new Map(found.map((each) => [each.digest, each]));
    return rows.map((row) => {
      const sum = pulls.get(row.digest);
      return sum ? { ...row, pullCount: sum.pulls, lastPulledAt: sum.last } : row;
    });
  }

  async storedAmong(digests: readonly Digest[]): Promise<Set<string>> {
    if (digests.length === 0) return new Set();
    const among = `repository_id = ? AND digest IN (${placeholders(digests)})`;
    const rows = await this.#database.select<{ digest: string }>(
      `SELECT digest FROM manifests WHERE ${among} UNION SELECT digest FROM repository_blobs WHERE ${among}`,
      [this.#id, ...digests, this.#id, ...digests],
    );
    return new Set(rows.map(({ digest }) => digest));
  }

  async referrers(digest: Digest, limit: number): Promise<readonly Descriptor[]> {
    return (await this.#images.referrers.list(this.#accountId, this.name, digest, { limit, last: '' })).descriptors;
  }

  async attachedTo(digests: readonly Digest[]): Promise<Map<Digest, Set<AttachedKind>>> {
    if (digests.length === 0) return new Map();
    const found = new Map(digests.map((each) => [each, new Set<AttachedKind>()]));
    const extract = `JSON_EXTRACT(annotations, '$."${predicateKey}"')`;
    const predicate = this.#database.dialect === 'mysql' ? `JSON_UNQUOTE(${extract})` : extract;
    const rows = await this.#database.select<{ subject: Digest; type: string; predicate: string | null }>(
      `SELECT DISTINCT subject, COALESCE(artifact_type, media_type) AS type,
         CASE WHEN artifact_type LIKE '${sigstoreBundle}%' THEN ${predicate} END AS predicate FROM manifests
       WHERE repository_id = ? AND subject IN (${placeholders(digests)}) LIMIT ${maxAttached}`,
      [this.#id, ...digests],
    );
    for (const { subject, type, predicate: of } of rows) {
      const kind = attachedKind(type, of);
      if (kind) found.get(subject)?.add(kind);
    }
    const tags = new Map(
      digests.flatMap((digest) => cosignTags(digest).map(([tag, kind]) => [tag, { digest, kind }] as const)),
    );
    const stored = await this.#database.select<{ name: string }>(
      `SELECT name FROM tags WHERE repository_id = ? AND name IN (${placeholders([...tags.keys()])})`,
      [this.#id, ...tags.keys()],
    );
    for (const { name } of stored) found.get(tags.get(name)!.digest)!.add(tags.get(name)!.kind);
    return found;
  }

  async deleteTag(tag: string): Promise<boolean> {
    return this.#images.manifests.deleteTag(this.#accountId, this.name, tag);
  }

  deleteManifest(digest: Digest): Promise<void> {
    return this.#images.manifests.delete(this.#accountId, this.name, { digest });
  }
}

type SummaryRow = Omit<RepositorySummary, 'tags' | 'upstream'> & { id: number };

const summaryColumns = `r.id, r.name, r.size_bytes AS sizeBytes, r.tag_count AS tagCount, r.pull_count AS pullCount,
  r.last_pulled_at AS lastPulledAt`;

const ofOther = 'SELECT 1 FROM repositories o WHERE o.account_id = ? AND o.name = r.name AND o.claimed_at IS NOT NULL';

function filtered(accountId: number, { text, only, without }: RepositoryFilter): { sql: string; values: Value[] } {
  const among = only?.where('r.name');
  return {
    sql: `r.account_id = ? AND ${hasManifest} ${text === '' ? '' : 'AND INSTR(r.name, ?) > 0'}
      ${among ? `AND ${among.sql}` : ''} ${without === undefined ? '' : `AND (${ofOther} LIMIT 1) IS NULL`}`,
    values: [
      accountId,
      ...(text === '' ? [] : [text]),
      ...(among?.values ?? []),
      ...(without === undefined ? [] : [without]),
    ],
  };
}

/** Repositories with a manifest, by name; `values` ends with the limit. */
function summaries(database: Database, condition: string, values: readonly (string | number | null)[]) {
  return database.select<SummaryRow>(
    `SELECT ${summaryColumns} FROM repositories r WHERE ${condition} AND ${hasManifest} ORDER BY r.name LIMIT ?`,
    values,
  );
}
