import { z } from 'zod';
import { NameSet } from '../accounts/names.ts';
import { isDigest } from '../runtime/digest.ts';
import { ListRefused, type BadDetail, type BadKind } from './entry.ts';

// A record is one in OSV's format (https://ossf.github.io/osv-schema/), or an own entry of an operator.

/** How the key of an entry is compared: `pattern` is one of names of images. */
type KeyKind = BadKind | 'pattern' | 'digest';

/** An entry of a record, before it is stored. */
export interface NewEntry {
  kind: KeyKind;
  /** In lower case. */
  key: string;
  detail: BadDetail;
}

/** What a record says: its entries replace those that the list had under this ID. A withdrawn record has none. */
export interface ReadRecord {
  id: string;
  entries: NewEntry[];
}

const maxReason = 500;
const maxVersions = 10_000;
const maxEvents = 1000;
const maxAffected = 1000;
/** The name of the packages of NuGet in OSV's format. */
export const ecosystem = 'NuGet';
/** Ranges of commits say nothing about versions. */
const rangeTypes = new Set(['ECOSYSTEM', 'SEMVER']);

const id = z.string().regex(/^[\x21-\x7e]{1,100}$/, 'expected 1 to 100 characters of ASCII without spaces');
const version = z.string().min(1).max(255);
const name = z.string().min(1).max(255);
const text = z.string().nullish();

const anyRecord = z.object({ id });

const osvRecord = z.object({
  id,
  summary: text,
  withdrawn: text,
  affected: z
    .array(
      z.object({
        package: z.object({ ecosystem: z.string(), name: z.string() }).nullish(),
        ranges: z
          .array(
            z.object({
              type: z.string(),
              events: z
                .array(
                  z.object({
                    introduced: version.optional(),
                    fixed: version.optional(),
                    last_affected: version.optional(),
                    limit: version.optional(),
                  }),
                )
                .max(maxEvents),
            }),
          )
          .max(maxEvents)
          .nullish(),
        versions: z.array(version).max(maxVersions).nullish(),
      }),
    )
    .max(maxAffected)
    .nullish(),
});

/** Matches patterns for all images only. A list that refuses everything is a mistake, or an attack. */
const anyImage = 'some.test/name/that/no/list/mentions';

/** Of an own entry, each digest, each image and each range of a package is bad by itself. */
const ownRecord = z.strictObject({
  id,
  reason: text,
  withdrawn: text,
  digests: z
    .array(z.string().refine(isDigest, 'expected sha256:<64 hex> or sha512:<128 hex>'))
    .max(maxAffected)
    .default([]),
  images: z
    .array(
      name
        .regex(/^[^\s\p{Cc}]+$/u, 'expected names or patterns of images')
        .refine(
          (pattern) => !new NameSet([pattern]).includes(anyImage),
          'expected a pattern that does not mean all images',
        ),
    )
    .max(maxAffected)
    .default([]),
  packages: z
    .array(
      z.strictObject({
        id: name.regex(/^[\w.-]+$/, 'expected the ID of a package'),
        versions: z
          .string()
          .max(520)
          .regex(
            /^(?:[[(][^[\]()]+[\])]|[\w.+*-]+)$/,
            'expected a range such as "[1.0, 2.0)", or "[1.0]" for one version',
          )
          .optional(),
      }),
    )
    .max(maxAffected)
    .default([]),
});

/**
 * Reads a record, which is called `label` in messages. Undefined for one in OSV's format whose ID `counts` does not accept. Throws
 * `ListRefused` for anything else that cannot be read: a list without some of its records would seem to be complete.
 */
export function readRecord(value: unknown, label: string, counts: (id: string) => boolean): ReadRecord | undefined {
  const fields = typeof value === 'object' && value !== null ? value : {};
  if (['digests', 'images', 'packages'].some((field) => field in fields))
    return readOwn(checked(ownRecord, value, label));
  const { id: found } = checked(anyRecord, value, label);
  return counts(found) ? readOsv(checked(osvRecord, value, label)) : undefined;
}

function checked<T>(schema: z.ZodType<T>, value: unknown, label: string): T {
  const { data, error } = schema.safeParse(value);
  if (!error) return data;
  const { path, message } = error.issues[0]!;
  const place = path.length === 0 ? '' : `: ${path.join('.')}`;
  throw new ListRefused(`has a record that cannot be used: ${label}${place}: ${message}`);
}

function readOsv({ id, summary, withdrawn, affected }: z.output<typeof osvRecord>): ReadRecord {
  if (isSet(withdrawn)) return { id, entries: [] };
  const reason = lineOf(summary);
  const entries = (affected ?? []).flatMap(({ package: named, ranges, versions }): NewEntry[] => {
    // What follows a colon is a release of the ecosystem.
    if (named?.ecosystem.split(':', 1)[0] !== ecosystem) return [];
    const read = (ranges ?? []).filter(({ type }) => rangeTypes.has(type)).map(({ events }) => events as object[]);
    const detail = {
      reason,
      ...(read.length > 0 && { ranges: read }),
      ...(versions && versions.length > 0 && { versions }),
    };
    return [{ kind: 'package', key: named.name.toLowerCase(), detail }];
  });
  const tooLong = entries.find(({ key }) => key.length > 255);
  if (tooLong) throw new ListRefused(`has a record with a name of more than 255 characters: ${id}`);
  return { id, entries };
}

function readOwn({ id, reason, withdrawn, digests, images, packages }: z.output<typeof ownRecord>): ReadRecord {
  if (isSet(withdrawn)) return { id, entries: [] };
  const detail = { reason: lineOf(reason) };
  return {
    id,
    entries: [
      ...digests.map((key) => ({ kind: 'digest' as const, key, detail })),
      ...images.map((pattern) => {
        const kind = pattern.includes('*') ? ('pattern' as const) : ('image' as const);
        return { kind, key: pattern.toLowerCase(), detail };
      }),
      ...packages.map((each) => ({
        kind: 'package' as const,
        key: each.id.toLowerCase(),
        detail: { ...detail, ...(each.versions !== undefined && { range: each.versions }) },
      })),
    ],
  };
}

function isSet(time: string | null | undefined): boolean {
  return typeof time === 'string' && time !== '';
}

/** One line without control characters, because it becomes a part of messages and headers. */
function lineOf(words: string | null | undefined): string {
  return (words ?? '')
    .replaceAll(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, maxReason);
}
