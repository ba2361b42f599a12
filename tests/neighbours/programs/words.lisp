; SPDX-License-Identifier: MIT
; `LIBRARY=... [CRASH=1] sbcl --load words.lisp`: objects (objects.cu) touched by compiled code and by C while memory faults
; and exhausted stacks are handled (SBCL has both from SIGSEGV) and garbage is collected; then in several threads, with none
; of that: its collector stops threads by a signal whose handler waits, and hangs now and then without libhpe, too.
(sb-alien:load-shared-object (sb-ext:posix-getenv "LIBRARY"))
(defconstant +count+ 131072)
(sb-alien:define-alien-routine "objects_new" sb-alien:unsigned-long (count sb-alien:unsigned-int))
(sb-alien:define-alien-routine "objects_free" sb-alien:void (words sb-alien:unsigned-long))
(sb-alien:define-alien-routine "objects_add" sb-alien:void
  (words sb-alien:unsigned-long) (count sb-alien:unsigned-int) (value sb-alien:unsigned-int))
(sb-alien:define-alien-routine "objects_round" sb-alien:unsigned-int
  (words sb-alien:unsigned-long) (count sb-alien:unsigned-int) (seed sb-alien:unsigned-int))
(sb-alien:define-alien-routine "objects_crash" sb-alien:void)

(defun deeper (n) (+ 1 (deeper (+ n 1)) n))
(defun overflows () (handler-case (deeper 1) (sb-kernel::control-stack-exhausted () t)))
(defun faults () (handler-case (sb-sys:sap-ref-32 (sb-sys:int-sap 16) 0) (sb-sys:memory-fault-error () t)))

(defun use (seed alone)
  (declare (type (unsigned-byte 16) seed) (optimize speed))
  (let* ((words (objects-new +count+)) (at (sb-sys:int-sap words)) (wrong 0) (garbage nil))
    (declare (type (unsigned-byte 32) wrong) (sb-ext:muffle-conditions sb-ext:compiler-note))
    (dotimes (round 3)
      (dotimes (i +count+) (setf (sb-sys:sap-ref-32 at (* 4 i)) (ldb (byte 32 0) (* i seed))))
      (objects-add words +count+ round)
      (dotimes (i +count+)
        (unless (= (sb-sys:sap-ref-32 at (* 4 i)) (ldb (byte 32 0) (+ round (* i seed)))) (incf wrong))
        (when (and alone (zerop (mod i 512))) (setf garbage (make-array 5000 :initial-element i)))
        (when (and alone (zerop (mod i 8192))) (unless (faults) (incf wrong))))
      (when alone (sb-ext:gc) (unless (overflows) (incf wrong)))
      (incf wrong (the (unsigned-byte 31) (objects-round words +count+ seed))))
    (objects-free words)
    (if (or garbage (not alone)) wrong 1)))

(defun say (&rest what) (format t "~{~a~^ ~}~%" what) (finish-output))
(when (sb-ext:posix-getenv "CRASH")
  (say (objects-round (objects-new +count+) +count+ 3) "wrong, crashes")
  (objects-crash))
(say (overflows) (faults))
(say (use 3 t) "wrong")
(say (overflows) (faults))
(let ((threads (loop for i below 4
                     collect (let ((seed (+ 5 (* 2 i)))) (sb-thread:make-thread (lambda () (use seed nil)))))))
  (say (reduce #'+ (mapcar #'sb-thread:join-thread threads)) "wrong in threads"))
(say (overflows) (faults))
