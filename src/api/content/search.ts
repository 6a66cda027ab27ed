import { alternatives, nameKinds } from '../../config/protocols.ts';
import { z } from 'zod';
import type { NameKind } from '../../accounts/names.ts';
import type { Principal } from '../../accounts/principal.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { searchHit, searchResults } from './content-schemas.ts';
import { origins } from '../framework/schemas.ts';

/** Most characters of a description in a hit. */
const maxDescriptionLength = 300;

type Hit = z.input<typeof searchHit>;

/** What most hits do not have. */
const without: Pick<Hit, 'digest' | 'severity' | 'deprecated'> = { digest: null, severity: null, deprecated: false };

/** A hit, and the position in its source from which the next hits follow. */
export interface FoundHit extends Omit<Hit, 'kind' | 'origin' | keyof typeof without>, Partial<typeof without> {
  position: string;
}

/** Content of one kind and origin that a search reads. */
export interface SearchSource {
  readonly kind: NameKind;
  readonly origin: Hit['origin'];
  /** Up to `limit` hits that the principal may see, after the position `after`; from the first one if it is empty. */
  find(principal: Principal, text: string, limit: number, after: string): Promise<FoundHit[]>;
}

const query = pageQuery.extend({
  q: z.string('expected one text').trim().min(1, 'expected a text').max(200).meta({
    description: 'Words. A name must have a word that begins with the longest of them, and contain the others',
  }),
  kind: z
    .enum(nameKinds, `expected ${alternatives(nameKinds)}`)
    .optional()
    .meta({ description: 'Only packages, or only images' }),
  origin: z.enum(origins, 'expected hosted or mirrored').optional().meta({ description: 'Only this origin' }),
  // It has a position in each source.
  cursor: z
    .string('expected one cursor')
    .max(6000)
    .optional()
    .meta({ description: '`next_cursor` of the page before' }),
});

/** `/search` over all sources together: the best hits of each source in turn. */
export function searchOperations(sources: readonly SearchSource[]): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/search',
      id: 'search',
      summary: 'Search hosted and mirrored packages and images. Sends nothing to an upstream',
      action: 'read',
      cost: 'searches',
      query,
      status: 200,
      answer: searchResults,
      run: async ({ principal, query: asked }) => {
        const { entries, next_cursor } = await readPage<Found, readonly string[]>(asked, {
          name: 'search',
          key: z.array(z.string()).length(sources.length),
          keyOf: ({ positions }) => positions,
          read: (limit, after) => findAll(sources, principal, asked, limit, after),
        });
        return { items: entries.map(({ hit }) => hit), next_cursor };
      },
    }),
  ];
}

interface Found {
  hit: Hit;
  /** The position in each source after this hit. */
  positions: readonly string[];
}

async function findAll(
  sources: readonly SearchSource[],
  principal: Principal,
  { q, kind, origin }: z.output<typeof query>,
  limit: number,
  after: readonly string[] = sources.map(() => ''),
): Promise<Found[]> {
  const lists = await Promise.all(
    sources.map(async (source, index) => {
      const isAsked = (kind ?? source.kind) === source.kind && (origin ?? source.origin) === source.origin;
      return isAsked ? source.find(principal, q, limit, after[index]!) : [];
    }),
  );
  const positions = [...after];
  const found: Found[] = [];
  for (let turn = 0; found.length < limit && lists.some(({ length }) => length > turn); turn += 1) {
    for (const [index, list] of lists.entries()) {
      const next = list[turn];
      if (!next) continue;
      const { position, ...hit } = next;
      positions[index] = position;
      const { kind: hitKind, origin: hitOrigin } = sources[index]!;
      const description = hit.description?.slice(0, maxDescriptionLength) ?? null;
      found.push({
        hit: { ...without, ...hit, kind: hitKind, origin: hitOrigin, description },
        positions: [...positions],
      });
    }
  }
  return found.slice(0, limit);
}
