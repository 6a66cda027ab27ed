import test from 'ava';
import type { MirroredName } from '../../src/mirror/policy/admission.ts';
import { PolicySeed, type ReferenceInPolicy } from '../../src/policy/seed.ts';
import { DomainError } from '../../src/runtime/errors.ts';

// Which waivers a seed requests, and what it says of each reference. test/cli/policy-seed.long.test.ts has the command.

type Parts = ConstructorParameters<typeof PolicySeed>[0];

/** What policies decide of a reference, and which layers hold it, one after the other. */
interface Given {
  refused?: { verdict: string; rule?: string; reason?: string; layer?: object };
  holds?: { scope: 'all' | 'account'; until?: number | undefined }[];
  error?: Error;
  /** No waiver lifts it. */
  isStubborn?: boolean;
}

const now = 1000;
const longest = 500;

/** Seeds these references, each with its name before a space; tells what became of them and what was asked of the waivers. */
async function seed(given: Record<string, Given>) {
  const lifted = new Set<string>();
  const resolved: string[] = [];
  const requested: object[] = [];
  const decided: unknown[] = [];
  const parts = {
    now: () => now,
    longest,
    gate: {
      explain: async ({ name }: MirroredName, reference: string) => {
        const { refused, holds = [], isStubborn } = given[`${name} ${reference}`]!;
        if (refused) return { audited: refused };
        const held = holds.find(({ scope }) => isStubborn === true || !lifted.has(`${scope} ${reference}`));
        if (!held) return { audited: { verdict: 'allow' } };
        return {
          audited: { verdict: 'hold', rule: 'age', reason: 'young', layer: { scope: held.scope }, until: held.until },
        };
      },
    },
    waivers: {
      resolve: async (story: string, asked: string, [reference]: string[]) => {
        resolved.push(reference!);
        const { error } = given[`${asked.toLowerCase()} ${reference}`]!;
        if (error) throw error;
        const references = story === 'container' ? [reference, 'sha256:0f'] : [reference];
        return { name: asked, key: asked.toLowerCase(), references };
      },
      request: async (wanted: { references: string[] }) => {
        requested.push(wanted);
        return { id: requested.length };
      },
      decide: async (accountId: number, id: number, decision: { layer: string }, decider: unknown) => {
        decided.push([accountId, id, decision, decider]);
        for (const each of (requested[id - 1] as { references: string[] }).references)
          lifted.add(`${decision.layer} ${each}`);
      },
    },
  };
  const references = Object.keys(given).map((each) => {
    const [name, reference] = each.split(' ') as [string, string];
    const kind = name.includes('/') ? 'container' : 'package';
    return { story: kind, askedName: name.toUpperCase(), name: { name, kind }, reference };
  }) as unknown as ReferenceInPolicy[];
  const of = { reason: 'a move', requester: 'ann' };
  const found = await new PolicySeed(parts as unknown as Parts).run(7, references, of);
  return { found: found as object[], requested, decided, resolved };
}

const waiver = (more: object) => ({
  accountId: 7,
  kind: 'package',
  name: 'LIB',
  key: 'lib',
  lifts: 'age',
  reason: 'a move',
  requester: 'ann',
  ...more,
});

test('what an age holds is opened by a waiver of each name and layer until it is old enough', async (t) => {
  const all = { scope: 'all' } as const;
  const { found, requested, decided } = await seed({
    'lib 1.0': { holds: [{ ...all, until: 1200 }] },
    'lib 2.0': { holds: [{ ...all, until: 1300 }] },
    'lib 3.0': {},
    'lib 4.0': { holds: [{ scope: 'account', until: 1100 }] },
    'team/app v1': { holds: [{ ...all, until: 1400 }] },
    'team/app v2': { holds: [{ ...all, until: 1400 }] },
  });
  t.deepEqual(found, [
    { outcome: 'opened', until: 1300 },
    { outcome: 'opened', until: 1300 },
    { outcome: 'open' },
    { outcome: 'opened', until: 1100 },
    { outcome: 'opened', until: 1400 },
    { outcome: 'opened', until: 1400 },
  ]);
  t.deepEqual(requested, [
    waiver({ references: ['1.0', '2.0'], expiresAt: 1300 }),
    waiver({ references: ['4.0'], expiresAt: 1100 }),
    waiver({
      kind: 'image',
      name: 'TEAM/APP',
      key: 'team/app',
      references: ['v1', 'sha256:0f', 'v2'],
      expiresAt: 1400,
    }),
  ]);
  t.deepEqual(decided, [
    [7, 1, { state: 'approved', layer: 'all' }, undefined],
    [7, 2, { state: 'approved', layer: 'account' }, undefined],
    [7, 3, { state: 'approved', layer: 'all' }, undefined],
  ]);
});

test('a reference that two layers hold gets two waivers, and one that is held after that is refused', async (t) => {
  const holds = [
    { scope: 'all', until: 1400 },
    { scope: 'account', until: 1200 },
  ] as const;
  const both = await seed({ 'lib 1.0': { holds: [...holds] } });
  t.deepEqual(both.found, [{ outcome: 'opened', until: 1400 }]);
  t.deepEqual(both.requested, [
    waiver({ references: ['1.0'], expiresAt: 1400 }),
    waiver({ references: ['1.0'], expiresAt: 1200 }),
  ]);
  const stubborn = await seed({ 'lib 1.0': { holds: [holds[0]], isStubborn: true }, 'lib 2.0': { holds: [holds[0]] } });
  t.like(stubborn.found, [{ outcome: 'refused', reason: 'it is still held' }, { outcome: 'opened' }]);
  t.is(stubborn.requested.length, 2);
});

test('a waiver lasts no longer than the setting allows', async (t) => {
  const { found } = await seed({
    'lib 1.0': { holds: [{ scope: 'all', until: now + longest + 1 }] },
    'other 1.0': { holds: [{ scope: 'all' }] },
    'third 1.0': { holds: [{ scope: 'all', until: now + longest - 1 }] },
  });
  t.deepEqual(found, [
    { outcome: 'opened', until: now + longest },
    { outcome: 'opened', until: now + longest },
    { outcome: 'opened', until: now + longest - 1 },
  ]);
});

test('what something else than an age refuses, and a name that cannot be read, is refused with the reason', async (t) => {
  const { found, requested, resolved } = await seed({
    'lib 1.0': { refused: { verdict: 'deny', rule: 'no-lib', reason: 'see SEC-1', layer: { scope: 'all' } } },
    'lib 2.0': { refused: { verdict: 'deny', rule: 'no-lib' } },
    'lib 3.0': { refused: { verdict: 'hold', rule: 'age', reason: 'no layer' } },
    'lib 4.0': { error: new DomainError('Invalid', 'This is no version.') },
    'lib 5.0': {},
    'lib 6.0': { holds: [{ scope: 'all', until: 1200 }] },
  });
  t.deepEqual(found, [
    { outcome: 'refused', reason: 'see SEC-1' },
    { outcome: 'refused', reason: 'deny' },
    { outcome: 'refused', reason: 'no layer' },
    { outcome: 'refused', reason: 'This is no version.' },
    { outcome: 'open' },
    { outcome: 'opened', until: 1200 },
  ]);
  t.is(requested.length, 1);
  t.deepEqual(resolved, ['1.0', '2.0', '3.0', '4.0', '5.0', '6.0', '5.0', '6.0'], 'no more is asked than needed');
  await t.throwsAsync(seed({ 'lib 1.0': { error: new Error('a defect') } }), { message: 'a defect' });
});

test('the references of one waiver are so many that each can have its digest beside it', async (t) => {
  const many: Record<string, Given> = {};
  for (let at = 0; at < 51; at += 1) many[`lib 1.0.${at}`] = { holds: [{ scope: 'all', until: 1100 + at }] };
  const { found, requested } = await seed(many);
  const sizes = requested.map((each) => (each as { references: string[] }).references.length);
  t.deepEqual(sizes, [25, 25, 1]);
  t.deepEqual(
    [found[0], found[25], found[50]],
    [
      { outcome: 'opened', until: 1124 },
      { outcome: 'opened', until: 1149 },
      { outcome: 'opened', until: 1150 },
    ],
  );
});
