import type { IncomingMessage } from 'node:http';
import { statusOf } from '../api/framework/errors.ts';
import type { SessionOwner } from '../accounts/sessions.ts';
import { isDomainError, type DomainError } from '../runtime/errors.ts';
import type { PersonSignIn, SignedIn } from '../identity/person-sign-in.ts';
import { pendingSignIn, removePendingSignIn, setPendingSignIn, type Scheme, type Signing } from './framework/cookie.ts';
import type { PageView } from './framework/page.ts';
import { noAccountView, signInFailedView } from './pages/account/sign-in.ts';

interface Place {
  scheme: Scheme;
  /** The base URL of this server. */
  base: string;
  signing: Signing;
  /** Called with the reason of a failure. */
  refusal: (error: DomainError) => void;
}

interface Answer extends Place {
  request: IncomingMessage;
  /** The query of the redirect URI. */
  query: string;
  /** Limits the answers that are sent to the provider. Throws `TooManyRequests`. */
  attempt: (work: () => Promise<SignedIn>) => Promise<SignedIn>;
}

/** Where the browser goes, with a cookie that binds the sign-in to it; or a page that says why not. */
export async function beginPersonSignIn(
  signIn: PersonSignIn,
  { scheme, base, next, signing, refusal }: Place & { next: string },
): Promise<PageView | { to: string; cookie: string }> {
  const secret = signIn.newSecret();
  try {
    const to = await signIn.addressFor(secret, redirectUri(base));
    return { to, cookie: await setPendingSignIn(scheme, { secret, next }, signing) };
  } catch (error) {
    return failed(error, refusal);
  }
}

/**
 * The owner of the new session, or a page that says why there is none. `cookie` removes the sign-in from the browser: its
 * secret is used once. The provider is asked only for a sign-in that this server began, and within the limit of failures, so
 * that strangers cannot use up the requests that the provider allows.
 */
export async function finishPersonSignIn(
  signIn: PersonSignIn,
  { request, scheme, base, query, signing, attempt, refusal }: Answer,
): Promise<({ owner: SessionOwner; next: string } | { view: PageView }) & { cookie: string }> {
  const cookie = removePendingSignIn(scheme);
  const pending = await pendingSignIn(request, scheme, signing);
  if (!pending) {
    const message = 'This browser has not begun to sign in, or it took longer than 10 minutes. Sign in again.';
    return { view: signInFailedView(message, 400), cookie };
  }
  const { secret, next } = pending;
  try {
    const callback = new URL(redirectUri(base));
    callback.search = query;
    const { person, accountId } = await attempt(() => signIn.finish(secret, callback));
    if (accountId === undefined) return { view: noAccountView(person), cookie };
    return { owner: { accountId, person }, next, cookie };
  } catch (error) {
    return { view: failed(error, refusal), cookie };
  }
}

/** Registered at the provider. */
function redirectUri(base: string): string {
  return `${base}/console/sign-in/oidc/callback`;
}

function failed(error: unknown, refusal: Place['refusal']): PageView {
  if (!isDomainError(error)) throw error;
  if (error.name !== 'Unauthorized' && error.name !== 'UpstreamUnavailable') throw error;
  refusal(error);
  return signInFailedView(error.message, error.name === 'Unauthorized' ? 400 : statusOf(error));
}
