import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import type { NameKind } from '../../accounts/names.ts';
import { kindOfWord, nameKinds, protocolWords } from '../../config/protocols.ts';
import type { MirrorOverview } from '../../mirror/overview.ts';
import type { NameStory } from '../../mirror/policy/upstream-policy.ts';
import { decisionItem } from '../../policy/decision-item.ts';
import type { PolicyGate } from '../../policy/gate.ts';
import type { FailedRequests } from '../../usage/failed-requests.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { count, givenTime, time, timeOf, timeOrNull } from '../framework/schemas.ts';
import { upstreamState } from './upstreams.ts';
import { upstreamItem } from './upstream-schemas.ts';

/** A protocol that knows from where an account gets a name. */
interface ExplainingProtocol {
  readonly kind: NameKind;
  explain(accountId: number, name: string): Promise<NameStory>;
}

export interface ExplainParts {
  protocols: readonly ExplainingProtocol[];
  overview: MirrorOverview;
  failures: FailedRequests;
  gate: Pick<PolicyGate, 'explain'>;
  /** Whether the mirror remembers that an upstream does not have an entry. */
  isAbsent: (key: { upstream: string; kind: string; name: string; reference: string }) => Promise<boolean>;
}

/** The kinds of names, in the words of people and of `/v1`. */
const kindNames = [...new Set([...protocolWords.map(({ word }) => word), ...nameKinds])];

const explainQuery = z.object({
  kind: z
    .enum(kindNames, `expected one of ${kindNames.join(', ')}`)
    .transform((name) => kindOfWord(name) ?? name)
    .meta({ description: 'What the name is; `image` and `container` mean the same' }),
  name: z
    .string('expected one name')
    .trim()
    .min(1, 'expected a name')
    .max(255)
    .meta({ description: 'A package ID, or the name of an image' }),
  reference: z
    .string('expected one reference')
    .trim()
    .min(1, 'expected a version, a tag or a digest')
    .max(255)
    .optional()
    .meta({ description: 'A version, a tag or a digest: the answer then says what the policy decides of it' }),
  at: givenTime
    .transform((text) => Date.parse(text))
    .optional()
    .meta({ description: 'The time for which the age is decided; now, if it is left out' }),
});

/** What is decided of a reference. */
export const decisionShape = {
  verdict: z.enum(['allow', 'hold', 'deny']),
  layer: z.enum(['all', 'account']).nullable().meta({ description: 'The policy that decided' }),
  rule: z.string().nullable().meta({
    description:
      '`age`, `except`, `fixesPass`, `advisories`, `withdrawn`, the name of the rule, or the ID of the entry of `list`',
  }),
  list: z.string().nullable().meta({ description: 'The list of known bad content that denies it' }),
  reason: z.string().nullable(),
  until: time.nullable().meta({ description: 'When a hold ends, if that is known' }),
  evidence: z.array(z.string()),
};
const decision = z.strictObject(decisionShape);

export const nameExplanation = z
  .strictObject({
    kind: z.enum(nameKinds),
    name: z.string(),
    origin: z.strictObject({
      hosted: z
        .boolean()
        .meta({ description: 'Whether the account hosts it, or did: then the name is kept from upstreams' }),
      reserved_by: z
        .string()
        .nullable()
        .meta({ description: 'The pattern of the setting `reserved` that keeps it from all upstreams' }),
      missing_registry: z
        .string()
        .nullable()
        .meta({ description: 'The registry that the name begins with and that is no upstream' }),
      upstreams: z.array(
        z.strictObject({
          id: z.string(),
          kind: upstreamItem.shape.kind,
          name_there: z.string().meta({ description: 'The name by which it is requested' }),
          included: z.boolean().meta({ description: 'Whether it gets requests for the name' }),
          rule: z.enum(['asked', 'hosted', 'reserved', 'excluded', 'not included', 'other account']).meta({
            description:
              'Whether it gets requests for the name, and why not. hosted: because this server hosts the name; excluded, not included: by `exclude` and `include` of the upstream; other account: its setting `accounts` does not name this account',
          }),
          pattern: z.string().nullable().meta({ description: 'The pattern that reserves or excludes the name' }),
          state: upstreamItem.shape.state,
          entries: count.meta({ description: 'Stored documents and files of the name, at most 1,000' }),
          confirmed_at: time.nullable().meta({ description: 'When it last sent or confirmed one of them' }),
          said_not_found: z
            .boolean()
            .meta({ description: 'Whether it answered a short time ago that it does not have the name' }),
          last_outcome: z.string().meta({
            description: 'What it said last, in words: `not asked yet`, `not found`, `stored`, or `failed: …`',
          }),
          last_failure: z
            .strictObject({ time, reason: z.string() })
            .nullable()
            .meta({ description: 'The latest request for the name that failed because of it, in the last two days' }),
        }),
      ),
    }),
    refused: z
      .strictObject({ time, code: z.string(), reason: z.string(), status: z.int() })
      .nullable()
      .meta({ description: 'The latest request of a client for the name that failed, in the last two days' }),
    ...decision.partial().shape,
    audited: decision.nullish().meta({
      description: 'What would be decided if policies with `mode: audit` were enforced; null if that is the same',
    }),
    facts: z
      .strictObject({
        published_at: time.nullable(),
        first_seen_at: time.nullable(),
        withdrawn_at: time
          .nullable()
          .meta({ description: 'When it was certain that the upstream does not offer it any more' }),
        listed: z
          .boolean()
          .nullable()
          .meta({ description: 'Whether the upstream shows the version in lists; null if that is not known here' }),
        digest: z.string().nullable(),
      })
      .nullish()
      .meta({ description: 'What is known of the reference; null if no upstream serves the name' }),
  })
  .meta({ id: 'NameExplanation' });

interface LastSaid {
  entries: number;
  /** Milliseconds since 1970 UTC, as `lastAt`. */
  validatedAt: number | null;
  isMissing: boolean;
  failure: { lastAt: number; reason: string } | undefined;
}

/** `/explain`: why a client gets a name, or does not. */
export function explainOperations({ protocols, overview, failures, isAbsent, gate }: ExplainParts): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/explain',
      id: 'explainName',
      summary:
        'Explain from where the account gets a package or an image: whether it is hosted or reserved, which upstreams are asked, what each said last, and what the policy decides of a version, tag or digest',
      action: 'operate',
      query: explainQuery,
      status: 200,
      answer: nameExplanation,
      run: async ({ principal, query: { kind, name, reference, at } }) => {
        allow(principal, 'read', kind, name.toLowerCase());
        const protocol = protocols.find((each) => each.kind === kind)!;
        const story = await protocol.explain(principal.accountId, name);
        const views = await overview.list();
        const known = await failures.list({ kind, names: story.spellings }, maxFailures);
        const { nameThere, document } = story;
        const upstreams = await Promise.all(
          story.upstreams.map(async ({ upstream, rule, pattern = null }) => {
            const { entries, validatedAt } = await overview.storedUnder(upstream, nameThere);
            const failure = known.find((each) => each.upstream === upstream.name);
            const isMissing = document
              ? await isAbsent({ upstream: upstream.id, name: nameThere, ...document })
              : false;
            return {
              id: upstream.id,
              kind: upstream.config.kind,
              name_there: nameThere,
              included: rule === 'asked',
              rule,
              pattern,
              state: upstreamState(views.find((each) => each.upstream === upstream)!),
              entries,
              confirmed_at: timeOrNull(validatedAt),
              said_not_found: isMissing,
              last_outcome: outcomeOf({ entries, validatedAt, isMissing, failure }),
              last_failure: failure ? { time: timeOf(failure.lastAt), reason: failure.reason } : null,
            };
          }),
        );
        const last = known.find(({ accountId }) => accountId === principal.accountId);
        return {
          kind,
          name,
          origin: {
            hosted: story.isHosted,
            reserved_by: story.reservedBy ?? null,
            missing_registry: story.missing ?? null,
            upstreams,
          },
          refused: last
            ? { time: timeOf(last.lastAt), code: last.code, reason: last.reason, status: last.status }
            : null,
          ...(reference !== undefined && (await explainReference(gate, story, reference, at))),
        };
      },
    }),
  ];
}

async function explainReference(gate: ExplainParts['gate'], story: NameStory, text: string, at: number | undefined) {
  const found = await story.referenceTo?.(text);
  if (!found) return { facts: null };
  const { enforced, audited, facts } = await gate.explain(found.name, found.reference, at);
  return {
    ...decisionItem(enforced),
    audited: audited.verdict === enforced.verdict ? null : decisionItem(audited),
    facts: {
      published_at: timeOrNull(facts.publishedAt ?? null),
      first_seen_at: timeOrNull(facts.firstSeenAt ?? null),
      withdrawn_at: timeOrNull(facts.withdrawnAt ?? null),
      listed: (await found.isListed?.()) ?? null,
      digest: facts.digest ?? null,
    },
  };
}

/** What an upstream said last of a name, in words. */
function outcomeOf({ entries, validatedAt, isMissing, failure }: LastSaid): string {
  if (isMissing) return 'not found';
  if (failure && failure.lastAt > (validatedAt ?? 0)) return `failed: ${failure.reason}`;
  return entries > 0 ? 'stored' : 'not asked yet';
}

/** Failures of a name that are searched for the latest of each upstream. */
const maxFailures = 100;
