/**
 * SQL for the size of the blob whose digest is in `column`, in bytes; NULL where there is no such blob. It is for the
 * SELECT list of other folders' queries. The code writes `column`, never a client.
 */
export function sizeOf(column: string): string {
  return `(SELECT size FROM blobs WHERE digest = ${column})`;
}
