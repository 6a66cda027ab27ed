import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Content } from '../storage/files/content.ts';
import type { SubjectKind } from '../usage/counters.ts';
import { contextOf } from './request-context.ts';
import { sendContent } from './send.ts';

/** A file as an answer. Who gets it closes its content. */
export interface AnsweredFile {
  content: Content;
  type: string;
  /** The name under which a browser stores it; undefined for a file that is shown. */
  name?: string;
  /** What it counts as a download of. */
  download?: { kind: SubjectKind; subject: string; version: string };
}

/** Answers with a file. */
export async function sendFile(
  request: IncomingMessage,
  response: ServerResponse,
  { content, type, name, download }: AnsweredFile,
): Promise<void> {
  if (download && request.method === 'GET') Object.assign(contextOf(response), download, { act: 'download' });
  await sendContent(request, response, content, {
    headers: {
      'Content-Type': type,
      // The address does not name the bytes: a visitor can change the account, and a file can be written again.
      'Cache-Control': 'no-store',
      ...(name !== undefined && { 'Content-Disposition': `attachment; filename="${name}"` }),
    },
    ranges: true,
  });
}
