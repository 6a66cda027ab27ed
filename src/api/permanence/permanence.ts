import type { Permanence } from '../../permanence/permanence.ts';
import { permanenceBody, permanenceItem } from '../../permanence/rule-schema.ts';
import { operation, type Operation } from '../framework/operation.ts';

export { permanenceItem };

const allNames =
  'A token with name patterns cannot use the rules of what is frozen and kept, because they concern all names.';

/** `/account/permanence`: what cannot change, and what cannot be deleted. */
export function permanenceOperations(permanence: Permanence): Operation[] {
  const path = '/account/permanence';
  return [
    operation({
      method: 'get',
      path,
      id: 'getPermanence',
      summary: 'Get the rules of the account: which tags cannot move, and what cannot be deleted',
      action: 'account',
      allNames,
      status: 200,
      answer: permanenceItem,
      run: ({ principal }) => permanence.get(principal.accountId),
    }),
    operation({
      method: 'put',
      path,
      id: 'putPermanence',
      summary: 'Replace the rules of the account: which tags cannot move, and what cannot be deleted',
      action: 'admin',
      allNames,
      lasting: true,
      body: permanenceBody,
      status: 200,
      answer: permanenceItem,
      run: async ({ principal, body }) => {
        await permanence.put({ id: principal.accountId, name: principal.accountName }, body);
        return body;
      },
    }),
  ];
}
