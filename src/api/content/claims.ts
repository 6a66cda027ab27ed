import { z } from 'zod';
import { capital, protocolWords } from '../../config/protocols.ts';
import type { NameKind } from '../../accounts/names.ts';
import type { Principal } from '../../accounts/principal.ts';
import { releaseClaim, type EmptyClaim, type EmptyClaims } from '../../mirror/policy/claims.ts';
import { claimList } from './content-schemas.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery } from '../framework/paging.ts';
import { countedPage, filterText, totalFlag } from '../framework/sorted.ts';
import { timeOf } from '../framework/schemas.ts';

/** The accounts' claims on names of one kind. */
export interface ReleasableClaims {
  readonly kind: NameKind;
  readonly claims: EmptyClaims;
}

/** A claim with its kind and the index of that kind. */
type Entry = EmptyClaim & { kind: NameKind; index: number };

/** `/claims`: names that the account keeps from upstreams after all of their content was deleted. */
export function claimOperations(kinds: readonly ReleasableClaims[]): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/claims',
      id: 'listClaims',
      summary: 'List the names without content that the account still claims, so that no upstream is used for them',
      action: 'admin',
      query: pageQuery.extend({
        total: totalFlag,
        q: filterText('Only names that contain this text, in any letter case'),
      }),
      status: 200,
      answer: claimList,
      run: async ({ principal, query }) => {
        const { names } = principal;
        const { entries, ...page } = await countedPage<Entry, readonly [number, string]>(query, {
          name: 'claims',
          key: z.tuple([z.int().min(0).max(100), z.string()]),
          keyOf: ({ index, position }) => [index, position],
          read: (limit, after) => readClaims(kinds, principal, limit, after),
          isVisible:
            names || query.q !== ''
              ? ({ kind, name }) => {
                  const key = name.toLowerCase();
                  return key.includes(query.q) && (names?.of(kind).includes(key) ?? true);
                }
              : undefined,
        });
        return { items: entries.map(({ kind, name, since }) => ({ kind, name, since: timeOf(since) })), ...page };
      },
    }),
    ...kinds.map(({ kind, claims }) =>
      operation({
        method: 'delete',
        path: `/claims/${kind}/${hasSlashes(kind) ? '*' : ':'}name`,
        id: releaseOf(kind),
        summary: 'Release the claim on a name without content, so that upstreams can serve it',
        action: 'admin',
        params: { name: 'The name' },
        subject: { kind, param: 'name', keyOf: (name: string) => name.toLowerCase() },
        status: 204,
        run: ({ owner, params }) => releaseClaim(kind, claims, owner, params['name']!),
      }),
    ),
  ];
}

async function readClaims(
  kinds: readonly ReleasableClaims[],
  { accountId }: Principal,
  limit: number,
  after: readonly [number, string] = [0, ''],
): Promise<Entry[]> {
  const found: Entry[] = [];
  for (const [index, { kind, claims }] of kinds.entries()) {
    if (index < after[0] || found.length >= limit) continue;
    const from = index === after[0] ? after[1] : '';
    const some = await claims.list(accountId, from, limit - found.length);
    found.push(...some.map((each) => ({ kind, index, ...each })));
  }
  return found;
}

/** The ID of the operation that releases a claim of this kind. */
function releaseOf(kind: NameKind): string {
  return `release${capital(kind)}Claim`;
}

function hasSlashes(kind: NameKind): boolean {
  return protocolWords.find((each) => each.kind === kind)?.hasSlashes ?? true;
}
