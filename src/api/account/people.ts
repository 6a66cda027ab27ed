import { z } from 'zod';
import { allowedAs } from '../../accounts/allow.ts';
import { maxDisableReason, type KnownPeople, type KnownPerson } from '../../accounts/known-people.ts';
import { everywhere } from '../../accounts/people.ts';
import type { PersonalTokenLimits } from '../../accounts/personal-limits.ts';
import type { Principal } from '../../accounts/principal.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { maxCounted, pageQuery } from '../framework/paging.ts';
import { actor, layerQuery, listOf, scope, time, timeOf } from '../framework/schemas.ts';
import { countedPage, countedTotal, filterText, totalFlag } from '../framework/sorted.ts';

const day = 86_400_000;

export const knownPerson = z
  .strictObject({
    id: z.string().meta({ description: 'As sessions, tokens and the audit name the person' }),
    name: z.string(),
    issuer: z.string(),
    subject: z.string(),
    signed_in_at: time,
    accounts: z.array(z.string()).meta({
      description: 'The accounts that rules and grants give the person; with `layer=account` only the own one',
    }),
    disabled: z
      .array(
        z.strictObject({
          account: z.string().nullable().meta({ description: 'Null for everywhere' }),
          by: actor.nullable().meta({ description: 'Null if it was done for all accounts, with `layer=account`' }),
          at: time,
          reason: z.string(),
        }),
      )
      .meta({ description: 'Where an administrator disabled the person' }),
  })
  .meta({ id: 'KnownPerson' });

export const knownPeopleList = listOf(knownPerson).extend({ total: countedTotal });

const disableBody = z
  .strictObject({ reason: z.string().trim().min(1).max(maxDisableReason).meta({ description: 'Why, for the audit' }) })
  .meta({ id: 'DisablePerson' });

export const personalLimits = z
  .strictObject({
    scopes: z
      .array(scope)
      .nullable()
      .default(null)
      .meta({ description: 'What personal tokens may have; null for every scope that their person has' }),
    longest_days: z
      .int('expected a whole number of days')
      .min(1, 'expected 1 to 3650 days')
      .max(3650, 'expected 1 to 3650 days')
      .nullable()
      .default(null)
      .meta({ description: 'The longest life of a personal token; null for the setting `signIn.tokens.absolute`' }),
  })
  .meta({ id: 'PersonalTokenLimits' });

const params = { id: 'The ID of the person' };
const allNames = 'A token with name patterns cannot use people, because their rights concern all names.';

/** `/people`: who signed in, and who is disabled; and `/account/personal-tokens`: what the account allows people to make. */
export function peopleOperations(people: KnownPeople, limits: PersonalTokenLimits): Operation[] {
  const limitsOf = async (accountId: number): Promise<z.input<typeof personalLimits>> => {
    const { scopes, longest } = await limits.of(accountId);
    return { scopes: scopes && [...scopes], longest_days: longest === null ? null : longest / day };
  };
  /** Who has the scope `operate` is disabled, and let in again, only with that scope. Throws `NotFound` and `ScopeMissing`. */
  const requireMayChange = async (principal: Principal, id: string, place: { name: string } | undefined) => {
    const found = await people.get(id, place?.name);
    if (place && (await people.operates(found, place.name))) allowedAs(principal, 'operate', allNames);
  };
  return [
    operation({
      method: 'get',
      path: '/people',
      id: 'listPeople',
      summary: 'List the people of the account, or with `layer=all` of all accounts, who signed in or are disabled',
      action: 'any',
      query: pageQuery.extend({
        ...layerQuery.shape,
        total: totalFlag,
        q: filterText('Only people whose name or subject contains this text, in any letter case'),
      }),
      status: 200,
      answer: knownPeopleList,
      run: async ({ principal, query }) => {
        const account = placeOf(principal, query.layer)?.name;
        const { entries, ...page } = await countedPage(query, {
          name: `people of ${query.layer}`,
          key: z.tuple([z.string()]),
          keyOf: ({ id }: KnownPerson) => [id] as [string],
          maxRead: maxCounted,
          read: (limit, after) => people.list(limit, after?.[0]),
          isVisible: (each) =>
            people.concerns(each, account) &&
            [each.person.name, each.person.subject].some((text) => text.toLowerCase().includes(query.q)),
        });
        return { items: entries.map((each) => item(each, account)), ...page };
      },
    }),
    operation({
      method: 'get',
      path: '/people/:id',
      id: 'getPerson',
      summary: 'Get a person of the account, or with `layer=all` of any account, who signed in or is disabled',
      action: 'any',
      params,
      query: layerQuery,
      status: 200,
      answer: knownPerson,
      run: async ({ principal, params: { id }, query: { layer } }) => {
        const account = placeOf(principal, layer)?.name;
        return item(await people.get(id!, account), account);
      },
    }),
    operation({
      method: 'post',
      path: '/people/:id/disable',
      id: 'disablePerson',
      summary:
        'Disable a person in the account, or with `layer=all` everywhere: sessions and personal tokens are refused at once',
      action: 'any',
      lasting: true,
      params,
      query: layerQuery,
      body: disableBody,
      status: 200,
      answer: knownPerson,
      run: async ({ principal, params: { id }, query: { layer }, body: { reason } }) => {
        const place = placeOf(principal, layer);
        await requireMayChange(principal, id!, place);
        return item(await people.disable(id!, place, reason), place?.name);
      },
    }),
    operation({
      method: 'post',
      path: '/people/:id/enable',
      id: 'enablePerson',
      summary: 'Let a person who was disabled in the account, or with `layer=all` everywhere, in again',
      action: 'any',
      lasting: true,
      params,
      query: layerQuery,
      status: 200,
      answer: knownPerson,
      run: async ({ principal, params: { id }, query: { layer } }) => {
        const place = placeOf(principal, layer);
        await requireMayChange(principal, id!, place);
        return item(await people.enable(id!, place), place?.name);
      },
    }),
    operation({
      method: 'get',
      path: '/account/personal-tokens',
      id: 'getPersonalTokenLimits',
      summary: 'Get what the account allows personal tokens: scopes, and the longest life',
      action: 'account',
      status: 200,
      answer: personalLimits,
      run: ({ principal }) => limitsOf(principal.accountId),
    }),
    operation({
      method: 'put',
      path: '/account/personal-tokens',
      id: 'putPersonalTokenLimits',
      summary:
        'Replace what the account allows personal tokens, also those that exist. This needs the scope operate, too, while one of them has it',
      action: 'admin',
      allNames,
      lasting: true,
      body: personalLimits,
      status: 200,
      answer: personalLimits,
      run: async ({ principal, body: { scopes, longest_days: days } }) => {
        const account = { id: principal.accountId, name: principal.accountName };
        if (await limits.concernOperate(account)) allowedAs(principal, 'operate', allNames);
        await limits.put(account, { scopes, longest: days === null ? null : days * day });
        return limitsOf(account.id);
      },
    }),
  ];
}

/** The account of the call; undefined for all. */
function placeOf(principal: Principal, layer: 'account' | 'all') {
  allowedAs(principal, layer === 'all' ? 'operate' : 'admin', allNames);
  return layer === 'all' ? undefined : { id: principal.accountId, name: principal.accountName };
}

function item(
  { id, person, accounts, signedInAt }: KnownPerson,
  account: string | undefined,
): z.input<typeof knownPerson> {
  const disabled = Object.entries(person.disabled ?? {}).filter(
    ([name]) => account === undefined || name === everywhere || name === account,
  );
  return {
    id,
    name: person.name,
    issuer: person.issuer,
    subject: person.subject,
    signed_in_at: timeOf(signedInAt),
    accounts: account === undefined ? accounts : accounts.filter((each) => each === account),
    disabled: disabled.map(([name, { by, at, reason }]) => ({
      account: name === everywhere ? null : name,
      by: name === everywhere && account !== undefined ? null : by,
      at: timeOf(at),
      reason,
    })),
  };
}
