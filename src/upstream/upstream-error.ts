import { DomainError } from '../runtime/errors.ts';

export type UpstreamErrorName = 'UpstreamUnavailable' | 'UpstreamTimeout';

export interface UpstreamErrorOptions {
  /** The upstream's name; undefined if it is not known. */
  upstream?: string | undefined;
  /** The upstream's ID; undefined if it is not known. */
  id?: string | undefined;
  /** Seconds after which the request may be repeated. */
  retryAfter?: number | undefined;
  /** Whether the settings forbid requests to it. */
  offline?: boolean;
  /** Whether the upstream accepted the credentials, but denied access to the resource. */
  denied?: boolean;
  cause?: unknown;
}

/** A request to an upstream was not possible, or its answer cannot be used. `detail` is for clients, the fields for code. */
export class UpstreamError extends DomainError {
  readonly upstream: string | undefined;
  readonly id: string | undefined;
  readonly offline: boolean;
  readonly denied: boolean;

  constructor(
    name: UpstreamErrorName,
    message: string,
    { upstream, id, retryAfter, offline = false, denied = false, cause }: UpstreamErrorOptions = {},
  ) {
    const detail = {
      ...(upstream !== undefined && { upstream }),
      ...(offline && { offline }),
      ...(retryAfter !== undefined && { retryAfter }),
      ...(denied && { denied }),
    };
    super(name, message, { detail: Object.keys(detail).length > 0 ? detail : undefined, cause, retryAfter });
    this.upstream = upstream;
    this.id = id;
    this.offline = offline;
    this.denied = denied;
  }
}

/** What `work` resolves to; undefined if an upstream fails. */
export async function unlessUpstreamFails<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UpstreamError) return undefined;
    throw error;
  }
}
