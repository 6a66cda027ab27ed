import { z } from 'zod';
import { allow, allowedAs } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import { writePolicy } from '../../policy/document.ts';
import { allAccounts, refusesAllText, type Policies, type StoredPolicy } from '../../policy/policies.ts';
import { readPolicy } from '../../policy/reading.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { layerQuery, layers, time, timeOf, timeOrNull } from '../framework/schemas.ts';

const allNames = 'This token is limited by name patterns, and a policy concerns all names.';

type LayerName = (typeof layers)[number];

/** Most characters of a policy as YAML: to read and to write YAML takes long. */
const maxTextLength = 8192;

export const policyItem = z
  .strictObject({
    layer: z.enum(layers),
    policy: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: 'As it was written; null without a policy' }),
    text: z
      .string()
      .nullable()
      .meta({ description: 'The same as YAML; null of one that is too long for `/policy/check`' }),
    revision: z.int().min(0).meta({ description: 'Grows with each change; 0 before the first one' }),
    changed_at: time.nullable(),
    suspended_until: time
      .nullable()
      .meta({ description: 'Until when it is not enforced, except its lists of known bad content; else null' }),
  })
  .meta({ id: 'Policy' });

export const policyCheck = z
  .strictObject({
    policy: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: 'For `PUT /policy`; null of an empty text' }),
    warning: z.string().nullable().meta({ description: 'That it refuses next to everything; else null' }),
  })
  .meta({ id: 'PolicyCheck' });

const checkBody = z.strictObject({
  text: z
    .string()
    .max(maxTextLength, `longer than ${maxTextLength} characters: apply it with a command`)
    .meta({ description: 'A policy as YAML or JSON. An empty one ends a policy' }),
});

const policyBody = z
  .record(z.string(), z.unknown())
  .meta({ description: 'The policy; docs/policy.md describes it. An empty object ends it' });

/** `/policy`: which content of upstreams an account gets. */
export function policyOperations(policies: Policies, readLists: () => Promise<void>, now: () => number): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/policy',
      id: 'getPolicy',
      summary: 'The policy for mirrored content of the account, or of all accounts',
      action: 'account',
      query: layerQuery,
      status: 200,
      answer: policyItem,
      run: async ({ principal, query: { layer } }) => {
        if (layer === 'all') allow(principal, 'operate');
        return toItem(layer, await policies.get(accountOf(principal, layer)), now());
      },
    }),
    operation({
      method: 'post',
      path: '/policy/check',
      id: 'checkPolicy',
      summary: 'Read the text of a policy. Changes nothing. 400 names the line and the key of a mistake',
      action: 'any',
      body: checkBody,
      status: 200,
      answer: policyCheck,
      run: async ({ principal, body: { text } }) => {
        // To read YAML takes long, so only those do it who can change a policy.
        if (!principal.scopes.has('operate')) allow(principal, 'admin');
        const parsed = await readPolicy(text, principal.accountId);
        const written = parsed?.written ?? null;
        const { refusesAll } = policies.check(written, parsed?.placeOf);
        return { policy: written as Record<string, unknown> | null, warning: refusesAll ? refusesAllText : null };
      },
    }),
    operation({
      method: 'put',
      path: '/policy',
      id: 'putPolicy',
      summary: 'Replace the policy for mirrored content of the account, or with `layer=all` of all accounts',
      action: 'any',
      lasting: true,
      query: layerQuery,
      body: policyBody,
      status: 200,
      answer: policyItem,
      run: async ({ principal, query: { layer }, body }) => {
        allowedAs(principal, layer === 'all' ? 'operate' : 'admin', allNames);
        const stored = await policies.put(accountOf(principal, layer), body, 'client');
        // New lists deny something when they were read. The answer does not wait: a run that goes on already, here or at an instance
        // that is gone, is followed by one of the schedule.
        if (stored.document && stored.document.knownBad.lists.length > 0) void readLists().catch(() => undefined);
        return toItem(layer, stored, now());
      },
    }),
  ];
}

function accountOf({ accountId }: Principal, layer: LayerName): number {
  return layer === 'all' ? allAccounts : accountId;
}

function toItem(layer: LayerName, stored: StoredPolicy | undefined, now: number): z.input<typeof policyItem> {
  return {
    layer,
    policy: (stored?.written ?? null) as Record<string, unknown> | null,
    text: stored ? textOf(stored) : null,
    revision: stored?.revision ?? 0,
    changed_at: timeOrNull(stored?.changedAt ?? null),
    suspended_until: stored && stored.suspendedUntil > now ? timeOf(stored.suspendedUntil) : null,
  };
}

function textOf({ document, written }: StoredPolicy): string | null {
  return document && JSON.stringify(written).length <= maxTextLength ? writePolicy(written) : null;
}
