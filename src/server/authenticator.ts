import type { Account } from '../accounts/accounts.ts';
import type { AnonymousPrincipal } from '../accounts/principal.ts';
import type { Core } from './core.ts';
import { Authenticator, authorizationOf, type ForeignVerifier } from '../http/authenticate.ts';
import { limitFailedSignIn, limitLookUp } from '../http/limit.ts';
import type { SeesAccounts } from '../http/probes.ts';

/** Records a failed sign-in, which concerns no account. */
export function noteFailedSignIn({ repeatedEvents }: Core): void {
  repeatedEvents.note({ type: 'sign_in.failed', accountId: 0, subject: { kind: 'token', name: null } });
}

/** Records a failed sign-in, and counts it for the address of the current request. Throws `TooManyRequests`. */
export function countFailedSignIn(core: Core): Promise<void> | undefined {
  noteFailedSignIn(core);
  return limitFailedSignIn(core.limits);
}

/** Turns the credentials of requests into principals, by the settings. `foreign` checks those of other servers. */
export function authenticatorOf(core: Core, foreign: ForeignVerifier): Authenticator {
  const { config, tokens, limits, defaultAccount } = core;
  const { anonymousRead: reads } = config;
  const anonymous = reads === 'none' ? undefined : anonymousOf(defaultAccount, reads);
  return new Authenticator(
    [tokens],
    anonymous,
    () => countFailedSignIn(core),
    (look) => limitLookUp(limits, look),
    foreign,
  );
}

/** On the public port, only a token with `operate` shows the metrics about accounts. */
export function operatorsOnly(authenticator: Authenticator): SeesAccounts {
  return async (request) => {
    if (authorizationOf(request) === undefined) return false;
    return (await authenticator.principalOf(request)).scopes.has('operate');
  };
}

function anonymousOf(account: Account, reads: AnonymousPrincipal['reads']): AnonymousPrincipal {
  return {
    kind: 'anonymous',
    reads,
    accountId: account.id,
    accountName: account.name,
    scopes: new Set(['read']),
    names: undefined,
  };
}
