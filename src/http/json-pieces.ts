import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { pause } from '../runtime/event-loop.ts';
import { contentOfPieces } from '../storage/files/content.ts';
import { sendContent } from './send.ts';

/** Characters of a document that become bytes in one step. */
const pieceLength = 64 * 1024;

/** The bytes of an object's JSON in pieces, with pauses for other work between the items of its own lists. */
export async function jsonInPieces(document: object): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  let text = '';
  let separator = '{';
  await pause();
  for (const [name, value] of Object.entries(document) as [string, unknown][]) {
    if (value === undefined) continue;
    text += `${separator}${JSON.stringify(name)}:`;
    separator = ',';
    if (!Array.isArray(value)) {
      text += JSON.stringify(value);
      continue;
    }
    text += '[';
    for (const [at, item] of value.entries()) {
      const json = JSON.stringify(item);
      const isLong = json.length >= pieceLength;
      text += `${at === 0 ? '' : ','}${isLong ? '' : json}`;
      if (isLong || text.length >= pieceLength) {
        pieces.push(Buffer.from(text));
        text = '';
      }
      const pausing = pause();
      if (pausing) await pausing;
      // Not as a part of `text`, which would be copied once more.
      if (isLong) pieces.push(Buffer.from(json));
    }
    text += ']';
  }
  pieces.push(Buffer.from(separator === '{' ? '{}' : `${text}}`));
  return pieces;
}

/** As `sendJson`, for an object whose lists can have megabytes. */
export async function sendLongJson(
  request: IncomingMessage,
  response: ServerResponse,
  body: object,
  headers: OutgoingHttpHeaders,
): Promise<void> {
  const complete = { 'Content-Type': 'application/json', ...headers };
  await sendContent(request, response, contentOfPieces(await jsonInPieces(body)), { headers: complete });
}
