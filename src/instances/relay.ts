import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { currentOrigin } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { whenSilent } from '../runtime/incoming.ts';
import { answerHeader, callHeader, encodeCall, maxAnswer, relayPath, resultIn, scheme } from './call.ts';
import type { Instances, InstanceTimes } from './instances.ts';
import { isSameSignature, type RelayKey } from './relay-key.ts';

/** A body that is sent with a call as it arrives. */
export interface RelayBody {
  source: Readable;
  /** Its length in bytes; undefined if it is not known. */
  size: number | undefined;
  /** A source that sends nothing for this many milliseconds is destroyed. */
  idle: number;
  onData: (bytes: number) => void;
}

/** The other instance is gone, or cannot be reached, or refused the call. */
export class InstanceLost extends Error {
  /** Whether it had accepted the call, so that it may have done all or a part of it. */
  readonly accepted: boolean;

  constructor(message: string, accepted: boolean, cause?: unknown) {
    super(message, { cause });
    this.accepted = accepted;
  }
}

interface Call {
  /** The data folder of the instances that can do it. */
  folder: string;
  /** The name of the handler, and what it gets. */
  name: string;
  work: unknown;
}

/** So many addresses are called, because a dead host costs the whole time of an answer. */
const maxCalled = 2;
/** Milliseconds until TCP asks a silent instance whether it is still there. */
const keepAlive = 10_000;

/**
 * Calls other instances over their internal listeners. A call lives as long as the other instance writes its heartbeats: the
 * end of an upload can take long. No part of a body is kept, and no connection is used twice.
 */
export class Relay {
  readonly #key: RelayKey;
  readonly #instances: Instances;
  readonly #now: () => number;

  constructor(key: RelayKey, instances: Instances, now: () => number) {
    this.#key = key;
    this.#instances = instances;
    this.#now = now;
  }

  /**
   * The result of the call at an instance with the data folder. Throws the domain errors of the handler, `Aborted` if
   * the source of the body broke off or was silent, and `InstanceLost`.
   */
  async call(call: Call, body?: RelayBody): Promise<unknown> {
    let failure = new InstanceLost('no instance that other instances can reach has this data folder', false);
    for (const address of await this.#addressesOf(call.folder)) {
      const sending = new Sending(this.#key, this.#signed(call), this.#instances.times.answer);
      try {
        await sending.open(address, body ? body.size : 0);
      } catch (error) {
        // Nothing of the body was sent.
        failure = lost(address, error, false);
        continue;
      }
      return await sending.finish(address, body, () => this.#isLive(call.folder), this.#instances.times);
    }
    throw failure;
  }

  #signed({ folder, name, work }: Call): string {
    return encodeCall({ to: folder, at: this.#now(), name, origin: currentOrigin(), work });
  }

  async #addressesOf(folder: string): Promise<string[]> {
    const addresses = (await this.#instances.withFolder(folder)).map(({ address }) => address);
    return [...new Set(addresses.filter((each) => each !== null))].slice(0, maxCalled);
  }

  /** If the database does not answer, the call continues: the other instance cannot write its heartbeats either. */
  async #isLive(folder: string): Promise<boolean> {
    const found = await this.#instances.withFolder(folder).catch(() => undefined);
    return found === undefined || found.some(({ isLive }) => isLive);
  }
}

/** One call to one instance. */
class Sending {
  readonly #key: RelayKey;
  readonly #call: string;
  readonly #signature: string;
  readonly #longest: number;
  readonly #failed = Promise.withResolvers<never>();
  readonly #answered = Promise.withResolvers<IncomingMessage>();
  #request: ClientRequest | undefined;

  constructor(key: RelayKey, call: string, longest: number) {
    this.#key = key;
    this.#call = call;
    this.#signature = key.ofCall(call);
    this.#longest = longest;
    // They are awaited only after the instance has accepted the call.
    this.#failed.promise.catch(() => undefined);
  }

  /** Resolves when the instance accepts the call. It has not got any of the body then. */
  async open(address: string, size: number | undefined): Promise<void> {
    const { hostname, port } = new URL(`http://${address}`);
    const request = httpRequest({
      host: hostname.replace(/^\[|\]$/g, ''),
      port,
      method: 'POST',
      path: relayPath,
      agent: false,
      headers: {
        [callHeader]: this.#call,
        authorization: `${scheme} ${this.#signature}`,
        'content-type': 'application/octet-stream',
        expect: '100-continue',
        ...(size === undefined ? { 'transfer-encoding': 'chunked' } : { 'content-length': size }),
      },
    });
    this.#request = request;
    const accepted = Promise.withResolvers<void>();
    request
      .on('continue', () => accepted.resolve())
      .on('socket', (socket) => socket.setKeepAlive(true, keepAlive))
      .on('error', (error) => this.#failed.reject(error))
      .on('response', (response) => {
        this.#answered.resolve(response);
        accepted.reject(
          new Error(`it refused the call with ${response.statusCode}; check ENTREPOT_INTERNAL_SECRET_FILE`),
        );
      });
    const timer = setTimeout(() => request.destroy(new Error('it did not answer in time')), this.#longest);
    request.flushHeaders();
    try {
      await Promise.race([accepted.promise, this.#failed.promise]);
    } catch (error) {
      request.destroy();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends the body, and resolves to the result. Asks `isLive` with each heartbeat. The other instance is lost after it was not live
   * for a whole lease: after an outage of the database, the first answers are from before its next heartbeat.
   */
  async finish(
    address: string,
    body: RelayBody | undefined,
    isLive: () => Promise<boolean>,
    { beat, lease }: InstanceTimes,
  ): Promise<unknown> {
    const request = this.#request!;
    let liveAt = performance.now();
    const look = async () => {
      if (await isLive()) liveAt = performance.now();
      else if (performance.now() - liveAt >= lease) request.destroy(new Error('it was not seen lately'));
    };
    const watch = setInterval(() => void look(), beat);
    let stopBody: (() => void) | undefined;
    try {
      const broken = Promise.withResolvers<never>();
      broken.promise.catch(() => undefined);
      if (body) stopBody = pump(body, request, broken.reject);
      else request.end();
      const answer = await Promise.race([this.#answered.promise, this.#failed.promise, broken.promise]);
      stopBody?.();
      return resultIn(await Promise.race([this.#read(answer), this.#failed.promise]));
    } catch (error) {
      throw error instanceof DomainError ? error : lost(address, error, true);
    } finally {
      clearInterval(watch);
      stopBody?.();
      request.destroy();
    }
  }

  async #read(answer: IncomingMessage): Promise<string> {
    const pieces: Buffer[] = [];
    let length = 0;
    for await (const piece of answer as AsyncIterable<Buffer>) {
      length += piece.length;
      if (length > maxAnswer) throw new Error('its answer is too large');
      pieces.push(piece);
    }
    const text = Buffer.concat(pieces).toString();
    const signature = answer.headers[answerHeader];
    if (typeof signature === 'string' && isSameSignature(this.#key.ofAnswer(this.#signature, text), signature))
      return text;
    throw new Error('its answer is not signed with the secret of the instances');
  }
}

/**
 * Sends `body` with `request`, as fast as both sides allow. Calls `fail` with `Aborted` if the source breaks off or is
 * silent. Returns a function that stops it, after which the rest of the source is dropped.
 */
function pump({ source, idle, onData }: RelayBody, request: ClientRequest, fail: (error: Error) => void): () => void {
  const cut = () => {
    if (!source.readableEnded) fail(cutOff());
  };
  const count = (piece: Buffer) => onData(piece.length);
  if (source.destroyed) cut();
  const stopSilenceCheck = whenSilent(source, idle, (error) => {
    source.destroy();
    fail(error);
  });
  source.on('data', count).on('close', cut).on('error', cut).once('end', stopSilenceCheck);
  source.pipe(request);
  return () => {
    stopSilenceCheck();
    source.unpipe(request);
    source.off('data', count).off('close', cut).off('error', cut).off('end', stopSilenceCheck);
    source.on('error', () => undefined);
    source.resume();
  };
}

function cutOff(): DomainError {
  return new DomainError('Aborted', 'The connection closed before the body was complete.');
}

function lost(address: string, error: unknown, accepted: boolean): InstanceLost {
  const { message } = error as Error;
  return new InstanceLost(`the instance at ${address} cannot be used: ${message}`, accepted, error);
}
