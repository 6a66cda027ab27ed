import { z } from 'zod';
import type { Access } from '../../accounts/access.ts';
import { allowObject, allowToken, coversPatterns } from '../../accounts/allow.ts';
import { granteeKinds, verbs, type Grant } from '../../accounts/grant-rows.ts';
import type { Grants } from '../../accounts/grants.ts';
import { maxPatternLength, maxPatterns, type Patterns } from '../../accounts/names.ts';
import type { Principal } from '../../accounts/principal.ts';
import { alternatives, capital, kindOfWord, pluralOf, protocolWords } from '../../config/protocols.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery } from '../framework/paging.ts';
import { actor, listOf, time, timeOf, timeOrNull } from '../framework/schemas.ts';
import { countedPage, countedTotal, totalFlag } from '../framework/sorted.ts';

const verb = z.enum(verbs, `expected ${verbs.join(', ')}`);
/** By the field of each kind of names: `packages` and `images`. */
const fields = protocolWords.map((words) => ({ ...words, field: pluralOf(words.word) }));

function patternFields(text: string): Record<string, z.ZodArray<z.ZodString>> {
  const list = z.array(z.string().trim().min(1).max(maxPatternLength)).max(maxPatterns);
  const shape = fields.map(({ field, names, example }) => {
    const description = `${capital(names)}, such as \`${example.replace(',', '`, `')}\`. ${text}`;
    return [field, list.meta({ description })] as const;
  });
  return Object.fromEntries(shape);
}

const subject = z.strictObject({
  kind: z.enum(granteeKinds, `expected ${granteeKinds.join(', ')}`),
  issuer: z
    .string()
    .max(255)
    .nullable()
    .meta({ description: 'The provider of a person or a group; null for a token and an account' }),
  id: z.string().trim().min(1, 'expected an ID').max(255).meta({
    description:
      'Of a person the subject (`sub`) at the provider, of a group a value of the claim `groups`, of a token its ID, of an account its name',
  }),
});

export const grantItem = z
  .strictObject({
    id: z.uuid(),
    account: z.string().meta({ description: 'The account whose names they are' }),
    subject,
    verbs: z.array(verb),
    ...patternFields('With both lists empty, all names'),
    state: z.enum(['active', 'pending']).meta({ description: '`pending`: the other account has not accepted it' }),
    created_by: actor.nullable().meta({ description: 'Who added it; null for a grant of another account' }),
    created_at: time,
    accepted_at: time.nullable(),
  })
  .meta({ id: 'Grant' });
export const grantList = listOf(grantItem).extend({ total: countedTotal });

const grantRequest = z
  .strictObject({
    subject: subject.extend({
      issuer: subject.shape.issuer.optional().meta({ description: 'By default `signIn.oidc.issuer` of the settings' }),
    }),
    verbs: z.array(verb).min(1, 'name at least one verb').max(50),
    ...z.object(patternFields('Without any list, all names; with one alone, no other kind of names')).partial().shape,
  })
  .meta({ id: 'GrantRequest' });

const accessQuery = z.object({
  who: z.enum(granteeKinds, `expected ${granteeKinds.join(', ')}`).meta({ description: 'What `id` names' }),
  id: subject.shape.id.meta({
    description:
      'Of a person the ID or the subject, of a group a value of the claim `groups`, of a token its ID, of an account its name',
  }),
  verb,
  kind: z
    .enum(
      protocolWords.map(({ word }) => word),
      `expected ${alternatives(protocolWords.map(({ word }) => word))}`,
    )
    .meta({ description: 'What `name` is' }),
  name: z.string('expected one name').trim().min(1, 'expected a name').max(255),
});

export const entitledList = z
  .strictObject({
    items: z.array(
      z.strictObject({
        who: z.enum([...granteeKinds, 'rule']).meta({ description: '`rule`: everybody with this claim' }),
        id: z.string().meta({ description: 'As in `/grants`; of a rule its claim and value' }),
        name: z.string().nullable().meta({ description: 'Of a person who signed in, and of a token' }),
        because: z.string().meta({ description: 'Which rule or grant gives it' }),
      }),
    ),
    is_complete: z
      .boolean()
      .meta({ description: 'False if there are more people or tokens than are examined, so that some may be missing' }),
  })
  .meta({ id: 'Entitled' });

export const accessAnswer = z
  .strictObject({
    allowed: z.boolean(),
    because: z.string().meta({ description: 'Which rule or grant allows it, or why none does' }),
    grants: z.array(grantItem).meta({ description: 'The grants that allow it' }),
  })
  .meta({ id: 'Access' });

export interface GrantParts {
  grants: Grants;
  access: Access;
  accounts: { nameOf(id: number): Promise<string | undefined> };
}

/**
 * `/grants`: who may do what with which names. All operations need the scope `admin`. A limited principal sees and changes only
 * grants within its own limits.
 */
export function grantOperations({ grants, access, accounts }: GrantParts): Operation[] {
  const item = async (principal: Principal, grant: Grant): Promise<z.input<typeof grantItem>> => ({
    id: grant.id,
    account: (await accounts.nameOf(grant.accountId)) ?? '',
    subject: grant.subject,
    verbs: grant.verbs.filter((each) => each !== 'operate'),
    ...shown(grant.patterns),
    state: grant.subject.kind === 'account' && grant.acceptedAt === null ? 'pending' : 'active',
    created_by: grant.accountId === principal.accountId ? grant.createdBy : null,
    created_at: timeOf(grant.createdAt),
    accepted_at: timeOrNull(grant.acceptedAt),
  });
  const id = { id: 'The ID of the grant' };
  return [
    operation({
      method: 'get',
      path: '/grants',
      id: 'listGrants',
      summary: 'List the grants of the account, and those of other accounts to it, the latest first',
      action: 'admin',
      query: pageQuery.extend({ total: totalFlag }),
      status: 200,
      answer: grantList,
      run: async ({ principal, query }) => {
        const { entries, ...page } = await countedPage(query, {
          name: 'grants',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Grant) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => grants.list(principal.accountId, limit, after),
          isVisible: principal.names ? (each) => coversPatterns(principal, each.patterns) : undefined,
        });
        return { items: await Promise.all(entries.map((each) => item(principal, each))), ...page };
      },
    }),
    operation({
      method: 'get',
      path: '/grants/explain',
      id: 'explainAccess',
      summary: 'Say whether somebody may do something with a name of the account, and which rule or grant decides that',
      action: 'admin',
      allNames: 'The rights of others are explained for all names: use a token without name patterns.',
      query: accessQuery,
      status: 200,
      answer: accessAnswer,
      run: async ({ principal, query: { who, id: of, verb: asked, kind, name } }) => {
        const account = { id: principal.accountId, name: principal.accountName };
        const question = { account, who: { kind: who, id: of }, verb: asked, kind: kindOfWord(kind)!, name };
        const { grants: given, ...found } = await access.explain(question);
        return { ...found, grants: await Promise.all(given.map((each) => item(principal, each))) };
      },
    }),
    operation({
      method: 'get',
      path: '/grants/entitled',
      id: 'listEntitled',
      summary:
        'List all who may do something with a name of the account: claims in rules of the settings, groups, people, tokens and accounts',
      action: 'admin',
      allNames: 'The rights of others are listed for all names: use a token without name patterns.',
      query: accessQuery.omit({ who: true, id: true }),
      status: 200,
      answer: entitledList,
      run: async ({ principal, query: { verb: asked, kind, name } }) => {
        const account = { id: principal.accountId, name: principal.accountName };
        const found = await access.entitled({ account, verb: asked, kind: kindOfWord(kind)!, name });
        return {
          items: found.entitled.map(({ who, ...each }) => ({ who: who.kind, id: who.id, ...each })),
          is_complete: found.isComplete,
        };
      },
    }),
    operation({
      method: 'post',
      path: '/grants',
      id: 'addGrant',
      summary:
        'Add a grant: a person, a group, a token or another account may do something with names of this account. One to another account gives `read`, and counts when that account has accepted it',
      action: 'admin',
      lasting: true,
      body: grantRequest,
      status: 201,
      answer: grantItem,
      run: async ({ principal, body }) => {
        const patterns = patternsIn(body);
        allowToken(principal, body.verbs, patterns);
        return item(principal, await grants.add(principal.accountId, { ...body, patterns }));
      },
    }),
    operation({
      method: 'get',
      path: '/grants/:id',
      id: 'getGrant',
      summary: 'Get a grant of the account, or one of another account to it',
      action: 'admin',
      params: id,
      status: 200,
      answer: grantItem,
      run: async ({ principal, params }) => {
        const found = await grants.get(principal.accountId, params['id']!);
        allowObject(principal, { scopes: found.verbs, patterns: found.patterns });
        return item(principal, found);
      },
    }),
    operation({
      method: 'post',
      path: '/grants/:id/accept',
      id: 'acceptGrant',
      summary: 'Accept a grant of another account: from now on its names are read under the same addresses',
      action: 'admin',
      allNames: 'A grant of another account is accepted for all names: use a token without name patterns.',
      lasting: true,
      params: id,
      status: 200,
      answer: grantItem,
      run: async ({ principal, params }) => item(principal, await grants.accept(principal.accountId, params['id']!)),
    }),
    operation({
      method: 'delete',
      path: '/grants/:id',
      id: 'removeGrant',
      summary: 'Remove a grant of the account, or end one of another account to it, at once',
      action: 'admin',
      params: id,
      status: 204,
      run: ({ principal, params }) =>
        grants.remove(principal.accountId, params['id']!, ({ verbs: scopes, patterns }) =>
          allowObject(principal, { scopes, patterns }),
        ),
    }),
  ];
}

/** The patterns of the fields of a request; null without any field. */
function patternsIn(body: Readonly<Record<string, unknown>>): Patterns | null {
  const given = fields.flatMap(({ plural, field }) =>
    body[field] ? [[plural, body[field] as string[]] as const] : [],
  );
  return given.length === 0 ? null : Object.fromEntries(given);
}

function shown(patterns: Patterns | null): Record<string, string[]> {
  return Object.fromEntries(fields.map(({ plural, field }) => [field, [...(patterns?.[plural] ?? [])]]));
}
