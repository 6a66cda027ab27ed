import { z } from 'zod';
import { coversPatterns, forAction } from '../../accounts/allow.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { findingList } from '../../api/content/content-schemas.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { pageQuery, readPage } from '../../api/framework/paging.ts';
import { filterText } from '../../api/framework/sorted.ts';
import { originFields, timeOrNull } from '../../api/framework/schemas.ts';
import { byBytes } from '../../runtime/sorted.ts';
import type { Database } from '../../database/database.ts';
import { recentDownloads } from '../../usage/daily.ts';
import type { UsageRecord } from '../../usage/record.ts';
import type { TokenUses } from '../../usage/token-uses.ts';
import { severities } from '../../mirror/policy/severities.ts';
import type { Finding, Findings } from './findings.ts';

const findingsQuery = pageQuery.extend({
  origin: z
    .enum(['hosted', 'mirrored'], 'expected hosted or mirrored')
    .optional()
    .meta({ description: 'Only content of this origin' }),
  kind: z
    .enum(['vulnerable', 'deprecated'], 'expected vulnerable or deprecated')
    .optional()
    .meta({ description: 'Only these versions' }),
  q: filterText('Only packages whose ID contains this text, in any letter case'),
});

/** How long an answer waits for the data of upstreams; milliseconds. */
const patience = 1500;

/** A finding, with its place in the list. */
type Ranked = Finding & { rank: string; downloads: number; lastAt: number | undefined };

interface Parts {
  database: Database;
  usage: Pick<UsageRecord, 'flush'>;
  uses: TokenUses;
  tokens: Tokens;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** `/findings`: the versions with known vulnerabilities, and the deprecated ones. */
export function findingOperations(findings: Findings, { database, usage, uses, tokens, now }: Parts): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/findings',
      id: 'listFindings',
      summary:
        'List the hosted and stored versions that have known vulnerabilities or are deprecated: the highest severity first, then the most used package',
      action: 'read',
      query: findingsQuery,
      status: 200,
      answer: findingList,
      run: async ({ principal, query }) => {
        const { accountId, names } = principal;
        const { byPackage, isComplete } = await findings.within(patience, accountId);
        const only = names?.of('package');
        const isVisible = ({ key, upstream, vulnerabilities, isDeprecated }: Finding) =>
          (upstream !== null || readsHosted(principal)) &&
          (only?.includes(key) ?? true) &&
          key.includes(query.q) &&
          (query.origin === undefined || (query.origin === 'hosted') === (upstream === null)) &&
          (query.kind === undefined || (query.kind === 'deprecated' ? isDeprecated : vulnerabilities.length > 0));
        const all = [...byPackage.values()].flatMap((versions) => [...versions.values()]).filter(isVisible);
        const keys = [...new Set(all.map(({ key }) => key))];
        await usage.flush().catch(() => undefined);
        const recent = await recentDownloads(database, accountId, 'package', keys, now());
        const last = await uses.lastUnder(accountId, 'package', keys);
        const ranked = all
          .map((each): Ranked => {
            const downloads = recent.get(each.key)!;
            return { ...each, downloads, lastAt: last.get(each.key), rank: rankOf(each, downloads) };
          })
          .sort((one, other) => byBytes(one.rank, other.rank));
        const { entries, next_cursor } = await readPage<Ranked, [string]>(query, {
          name: 'findings',
          key: z.tuple([z.string()]),
          keyOf: ({ rank }) => [rank],
          read: (limit, after) =>
            Promise.resolve(ranked.filter(({ rank }) => !after || byBytes(rank, after[0]) > 0).slice(0, limit)),
        });
        const count = (which: (each: Finding) => boolean) => ranked.filter(which).length;
        return {
          items: await withUsers(principal, accountId, entries, { uses, tokens }),
          next_cursor,
          vulnerable_count: count(({ vulnerabilities }) => vulnerabilities.length > 0),
          deprecated_count: count(({ isDeprecated }) => isDeprecated),
          is_complete: isComplete,
        };
      },
    }),
  ];
}

/** Sorts by severity and by use, both from the highest, then by name and version. */
function rankOf({ key, version, vulnerabilities: [highest] }: Finding, recent: number): string {
  const severity = String(severities.length - (highest?.severity ?? -1));
  // Always 16 digits, so that texts are in the order of numbers.
  const downloads = String(Number.MAX_SAFE_INTEGER - recent);
  return `${severity} ${downloads} ${key} ${version}`;
}

/** The items of `entries`. Who used a package last is told to those who may see that token. */
async function withUsers(
  principal: Principal,
  accountId: number,
  entries: readonly Ranked[],
  { uses, tokens }: { uses: TokenUses; tokens: Tokens },
) {
  const keys = principal.scopes.has('admin') ? [...new Set(entries.map(({ key }) => key))] : [];
  const latest = await uses.latest(accountId, 'package', keys);
  const ids = [...new Set([...latest.values()].map(({ userId }) => userId))];
  const known = new Map(await Promise.all(ids.map(async (id) => [id, await tokens.get(accountId, id)] as const)));
  const admin = forAction(principal, 'admin');
  const found = new Map<string, { token_id: string; token_name: string | null }>();
  for (const [key, { userId }] of latest) {
    const token = known.get(userId);
    if (admin.names && !(token && coversPatterns(admin, token.patterns))) continue;
    found.set(key, { token_id: userId, token_name: token?.name ?? null });
  }
  return entries.map((each) => ({ ...itemOf(each), last_used_by: found.get(each.key) ?? null }));
}

function itemOf({ id, version, upstream, vulnerabilities, isDeprecated, downloads, lastAt }: Ranked) {
  const [highest] = vulnerabilities;
  return {
    id,
    version,
    ...originFields(upstream),
    severity: highest ? severities[highest.severity]! : null,
    advisories: vulnerabilities.map(({ severity, url }) => ({ severity: severities[severity]!, url })),
    deprecated: isDeprecated,
    downloads_30_days: downloads,
    last_used_at: timeOrNull(lastAt ?? null),
  };
}
