import { z } from 'zod';
import type { ObservedBills } from '../../exposure/observed-bills.ts';
import { operation, type Operation } from '../framework/operation.ts';

const enabled = z.boolean().meta({ description: 'Whether images that jobs of a CI push from now on get a bill' });
const observedBillsBody = z.strictObject({ enabled }).meta({ id: 'SetObservedBills' });

export const observedBills = z
  .strictObject({
    enabled,
    public_key: z.string().nullable().meta({
      description:
        'The key that verifies bills, as PEM; the same for all accounts. Null until an account wants bills, and if the key is missing on this server',
    }),
  })
  .meta({ id: 'ObservedBills' });

/** `/account/observed-bills`: whether images that jobs push get a signed bill of materials of what the job pulled. */
export function observedBillOperations(bills: ObservedBills): Operation[] {
  const path = '/account/observed-bills';
  const shown = async (accountId: number): Promise<z.input<typeof observedBills>> => ({
    enabled: await bills.isWanted(accountId),
    public_key: await bills.publicKey(),
  });
  return [
    operation({
      method: 'get',
      path,
      id: 'getObservedBills',
      summary:
        'Get whether images that jobs of a CI push get a signed bill of materials of what the job pulled before, and the key that verifies it',
      action: 'account',
      status: 200,
      answer: observedBills,
      run: ({ principal }) => shown(principal.accountId),
    }),
    operation({
      method: 'put',
      path,
      id: 'putObservedBills',
      summary:
        'Begin or end that images that jobs of a CI push get a signed bill of materials of what the job pulled before. Whoever may read an image may read its bill. The bill names private packages, and packages that other accounts share with this account',
      action: 'admin',
      allNames: 'A token with name patterns cannot change this, because bills list all names that a job pulled.',
      lasting: true,
      body: observedBillsBody,
      status: 200,
      answer: observedBills,
      run: async ({ principal: { accountId: id, accountName: name }, body }) => {
        await bills.put({ id, name }, body.enabled);
        return shown(id);
      },
    }),
  ];
}
