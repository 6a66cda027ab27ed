import { Names } from '../../src/accounts/names.ts';
import type { Operation, OperationCall } from '../../src/api/framework/operation.ts';

// Operations of `/v1` that run without a server, on parts that only answer.

/** A token of the account `alpha`, whose ID is 7. */
export const sender = {
  kind: 'token',
  accountId: 7,
  accountName: 'alpha',
  scopes: new Set(['read']),
  tokenId: 'mine',
  publisherId: null,
  personId: null,
};

/** A principal that is limited to packages. */
export const named = (...packages: string[]) => ({ names: new Names({ packages }) });

/** A principal with these scopes. */
export const scopes = (...all: string[]) => ({ scopes: new Set(all) });

/** Runs operations. A call has a query, path parameters or a body; a principal is what differs from `sender`. */
export function runOf(operations: readonly Operation[]) {
  return async (id: string, call: object = {}, principal: object = {}): Promise<Record<string, any>> => {
    const found = operations.find((each) => each.id === id)!;
    const { query: asking, ...others } = { query: {}, ...call };
    return found.run({
      principal: { ...sender, ...principal },
      owner: sender.accountId,
      params: { id: '5' },
      query: found.query?.parse(asking),
      ...others,
    } as unknown as OperationCall<never, never>) as never;
  };
}

/** A part that notes in `asked` what it is asked for. */
export const noted =
  (asked: unknown[], name: string, answer?: unknown) =>
  (...given: unknown[]) => {
    asked.push([name, ...given]);
    return Promise.resolve(answer);
  };
