import { DomainError } from '../errors.ts';

export type UpstreamErrorName = 'UpstreamUnavailable' | 'UpstreamTimeout';

export interface UpstreamErrorOptions {
  /** The upstream's name; undefined where it is not known. */
  upstream?: string | undefined;
  /** Seconds after which it may be asked again. */
  retryAfter?: number | undefined;
  /** Whether it is not asked because the settings say so. */
  offline?: boolean;
  /** Whether it understood who asks, and says that this is not for them. */
  denied?: boolean;
  cause?: unknown;
}

/** An upstream could not be asked, or gave nothing usable. What `detail` shows is for clients; the fields are for us. */
export class UpstreamError extends DomainError {
  readonly upstream: string | undefined;
  readonly offline: boolean;
  readonly denied: boolean;

  constructor(
    name: UpstreamErrorName,
    message: string,
    { upstream, retryAfter, offline = false, denied = false, cause }: UpstreamErrorOptions = {},
  ) {
    const detail = {
      ...(upstream !== undefined && { upstream }),
      ...(offline && { offline }),
      ...(retryAfter !== undefined && { retryAfter }),
      ...(denied && { denied }),
    };
    super(name, message, { detail: Object.keys(detail).length > 0 ? detail : undefined, cause, retryAfter });
    this.upstream = upstream;
    this.offline = offline;
    this.denied = denied;
  }
}
