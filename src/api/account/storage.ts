import { z } from 'zod';
import type { NameKind } from '../../accounts/names.ts';
import { nameKinds } from '../../config/protocols.ts';
import type { Config } from '../../config/schema.ts';
import type { SizedName, StorageMeter } from '../../usage/stored.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { bytes, time, timeOf, timeOrNull } from '../framework/schemas.ts';

export interface StorageParts {
  stored: StorageMeter;
  limits: Config['limits'];
  mirror: Config['mirror'];
  room: { measure(): Promise<{ free: number; reserve: number }> };
  protocols: readonly {
    readonly kind: NameKind;
    /** Up to `limit` names that an account hosts, the largest first. */
    largest(accountId: number, limit: number): Promise<SizedName[]>;
  }[];
  now: () => number;
}

const sizedNames = z.array(
  z.strictObject({
    kind: z.enum(nameKinds),
    name: z.string(),
    size_bytes: bytes,
    last_used_at: time.nullable().meta({ description: 'The last download; null if there was none' }),
    changed_at: time,
  }),
);

export const storageSchema = z
  .strictObject({
    as_of: time
      .nullable()
      .meta({ description: 'When the stored bytes were measured; null while they are for the first time' }),
    hosted_bytes: bytes,
    mirrored_bytes: bytes.meta({
      description: 'Mirrored content, which all accounts share; counted with the account default',
    }),
    limit_bytes: bytes.nullable().meta({ description: 'The limit of the account for both; null without one' }),
    mirror_limit_bytes: bytes
      .nullable()
      .meta({ description: 'The setting `mirror.maxSize`; null without one, or without the scope operate' }),
    disk: z
      .strictObject({
        free_bytes: bytes,
        reserve_bytes: bytes.meta({ description: 'What stays free: `storage.reserve`' }),
      })
      .nullable()
      .meta({ description: 'The disk of the data folder; null without the scope operate' }),
    history: z
      .array(z.strictObject({ date: z.iso.date(), hosted_bytes: bytes, mirrored_bytes: bytes }))
      .meta({ description: 'The mean of the samples of each day, for the days that have some' }),
    largest: sizedNames.meta({ description: 'The 20 largest hosted packages and images' }),
    unused: sizedNames.meta({
      description:
        'Of the 2,000 largest of each kind, the 20 largest that were not downloaded and not changed for 90 days',
    }),
  })
  .meta({ id: 'Storage' });

const storageQuery = z.object({
  days: z.enum(['30', '365'], 'expected 30 or 365').default('30').meta({ description: 'The days of the history' }),
});

const day = 86_400_000;
const shown = 20;
const examined = 2000;
const unusedAfter = 90 * day;

/** `/account/storage`: what fills the disk, and what nobody uses. */
export function storageOperations({ stored, limits, mirror, room, protocols, now }: StorageParts): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/account/storage',
      id: 'getStorage',
      summary: 'Show what the account stores: its limits, its growth, the largest names, and those that nobody uses',
      action: 'account',
      query: storageQuery,
      status: 200,
      answer: storageSchema,
      run: async ({ principal, query }) => {
        const { accountId, names } = principal;
        const operates = principal.scopes.has('operate');
        const [current, history, disk, ...lists] = await Promise.all([
          stored.of(accountId),
          stored.history(accountId, now() - Number(query.days) * day),
          operates ? room.measure() : undefined,
          ...protocols.map(async (each) => ({ kind: each.kind, found: await each.largest(accountId, examined) })),
        ]);
        const all = lists
          .flatMap(({ kind, found }) => found.map((each) => ({ ...each, kind })))
          .filter(({ kind, name }) => names?.of(kind).includes(name.toLowerCase()) ?? true)
          .sort((one, other) => other.sizeBytes - one.sizeBytes);
        const isUnused = ({ changedAt, lastUsedAt }: SizedName) =>
          Math.max(changedAt, lastUsedAt ?? 0) < now() - unusedAfter;
        const { hosted = 0, mirrored = 0, asOf = null } = current ?? {};
        return {
          as_of: timeOrNull(asOf),
          hosted_bytes: hosted,
          mirrored_bytes: mirrored,
          limit_bytes: limits.accountStorage ?? null,
          mirror_limit_bytes: operates ? (mirror.maxSize ?? null) : null,
          disk: disk ? { free_bytes: disk.free, reserve_bytes: disk.reserve } : null,
          history: history.map((each) => ({
            date: timeOf(each.day).slice(0, 10),
            hosted_bytes: each.hosted,
            mirrored_bytes: each.mirrored,
          })),
          largest: all.slice(0, shown).map(itemOf),
          unused: all.filter(isUnused).slice(0, shown).map(itemOf),
        };
      },
    }),
  ];
}

function itemOf({ kind, name, sizeBytes, changedAt, lastUsedAt }: SizedName & { kind: string }) {
  return {
    kind,
    name,
    size_bytes: sizeBytes,
    last_used_at: timeOrNull(lastUsedAt),
    changed_at: timeOf(changedAt),
  };
}
