/**
 * SQL for the size of the blob whose digest is in `column`, in bytes; NULL if there is no such blob. For the SELECT list
 * of other folders' queries. `column` is SQL text that the code writes, never a client's input.
 */
export function sizeOf(column: string): string {
  return `(SELECT size FROM blobs WHERE digest = ${column})`;
}
