import type { IncomingMessage } from 'node:http';
import type { Logger } from 'pino';
import { runFor, type Caller } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { drain } from '../http/drain.ts';
import { answerOrRefuse } from '../http/edge.ts';
import { listen, type AppServer } from '../http/listener.ts';
import type { AppResponse } from '../http/request-context.ts';
import {
  answerHeader,
  callHeader,
  decodeCall,
  encodeError,
  encodeResult,
  relayPath,
  scheme,
  type RelayCall,
} from './call.ts';
import { isSameSignature, type RelayKey } from './relay-key.ts';

/** What does the calls of one name. It may throw domain errors. */
export interface RelayHandler {
  name: string;
  /** `request` is the body. */
  run(work: unknown, request: IncomingMessage): Promise<unknown>;
}

interface RelayListenerOptions {
  host: string;
  port: number;
  /** Whether other workers listen on the port too. */
  shared: boolean;
  key: RelayKey;
  /** The data folder whose files the handlers use. */
  folder: string;
  handlers: readonly RelayHandler[];
  log: Logger;
  now: () => number;
}

/** Bounds of a connection before its call is known. */
const limits = { headerTimeout: 10_000, headerSize: 16 * 1024 };
const maxConnections = 4096;
/** The clocks of two instances may differ by this many milliseconds; a call is refused when it is older. */
const clockTolerance = 300_000;
/** Bounds for the rest of a body that is not used, so that its sender can read the answer. */
const restOfBody = { idle: 5000, total: 10_000 };
/** A refused call is logged at most once in this time; milliseconds. */
const logEvery = 60_000;

const failed = new DomainError('StorageUnavailable', 'The instance that has this upload failed. Try again.');

/** Listens for calls of other instances. Nothing of a body is read before the signature of its call was checked. */
export async function listenForRelay(options: RelayListenerOptions): Promise<AppServer> {
  const { host, port, shared } = options;
  const calls = new Calls(options);
  const answer = (request: IncomingMessage, response: AppResponse) => void calls.answer(request, response);
  const noProxy = { perAddress: undefined, isProxy: () => false, onRefused: () => undefined };
  const server = await listen(answer, host, port, { ...limits, ...noProxy }, { shared });
  server.http.on('checkContinue', answer);
  server.http.maxConnections = maxConnections;
  return server;
}

class Calls {
  readonly #options: RelayListenerOptions;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: RelayListenerOptions) {
    this.#options = options;
  }

  /** Answers a request. Never rejects. */
  async answer(request: IncomingMessage, response: AppResponse): Promise<void> {
    const { log, key } = this.#options;
    response.on('close', () => {
      if (!request.complete) drain(request, restOfBody);
    });
    const signature = this.#signatureOf(request);
    const call = signature === undefined ? undefined : decodeCall(request.headers[callHeader] as string);
    const refusal = call ? this.#refusal(call) : 'it is not signed with the secret of this instance';
    if (!call || signature === undefined || refusal !== undefined) {
      this.#refuse(request, response, refusal!);
      return;
    }
    const send = (body: string) =>
      response
        .writeHead(200, {
          'Content-Type': 'application/json',
          'Content-Length': Buffer.byteLength(body),
          [answerHeader]: key.ofAnswer(signature, body),
          Connection: 'close',
        })
        .end(body);
    const edge = answerOrRefuse<RelayCall>(
      { log, statusOf: () => 200, refuse: (_request, _response, _status, error = failed) => send(encodeError(error)) },
      async () => {
        if (request.headers.expect !== undefined) response.writeContinue();
        const body = encodeResult(await this.#run(call, request, response));
        if (!response.destroyed) send(body);
      },
    );
    await edge(call, request, response);
  }

  /** The signature of the request, if it is right. */
  #signatureOf({ method, url, headers }: IncomingMessage): string | undefined {
    const call = headers[callHeader];
    const { authorization = '' } = headers;
    if (method !== 'POST' || url !== relayPath || typeof call !== 'string') return undefined;
    const expected = this.#options.key.ofCall(call);
    return isSameSignature(`${scheme} ${expected}`, authorization) ? expected : undefined;
  }

  /** Why a signed call is not for this instance; undefined if it is. */
  #refusal({ at, to }: RelayCall): string | undefined {
    if (Math.abs(this.#options.now() - at) > clockTolerance)
      return 'the clocks of the two instances differ by more than 5 minutes';
    return to === this.#options.folder ? undefined : 'it is for an instance with another data folder';
  }

  #run(call: RelayCall, request: IncomingMessage, response: AppResponse): Promise<unknown> {
    const handler = this.#options.handlers.find(({ name }) => name === call.name);
    if (!handler) throw new DomainError('Unsupported', 'The other instance has a version that cannot do this.');
    const { origin } = call;
    const whenGone = (then: () => void) => response.whenGone(then);
    const caller: Caller = {
      account: undefined,
      writes: true,
      get gone() {
        return response.gone;
      },
      whenGone,
      origin,
    };
    return runFor(caller, () => handler.run(call.work, request));
  }

  #refuse(request: IncomingMessage, response: AppResponse, reason: string): void {
    if (performance.now() - this.#loggedAt >= logEvery) {
      this.#loggedAt = performance.now();
      const { remoteAddress: address } = request.socket;
      this.#options.log.warn({ address, reason }, 'a call to the internal port was refused');
    }
    response.writeHead(401, { 'Content-Length': 0, Connection: 'close' });
    response.end();
  }
}
